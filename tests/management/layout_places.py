"""Where each field of a management datagram begins, as the standard has it (IBTA vol. 1, 12.6, 12.8, 12.11,
13.4, 13.6, 14.2, 15.2, 16.1, 16.3).

Of each layout: its length in bytes, and its fields in their order, each with its first bit, counted from the
layout's first; a field ends where the next one begins.  Those of port, node, switch, counters, paths, groups,
services and of the classes agree with what libibmad 5 has.
"""

from __future__ import annotations

PLACES: dict[str, tuple[int, str]] = {
    "mad.MadHeader": (24,
        "base_version 0, management_class 8, class_version 16, method 24, status 32, "
        "class_specific 48, transaction_id 64, attribute_id 128, reserved16 144, "
        "attribute_modifier 160"),
    "directed_route.DirectedRoute": (12,
        "m_key 0, dr_slid 64, dr_dlid 80"),
    "attributes.NodeInfo": (40,
        "base_version 0, class_version 8, node_type 16, num_ports 24, system_image_guid 32, "
        "node_guid 96, port_guid 160, partition_cap 224, device_id 240, revision 256, "
        "local_port_num 288, vendor_id 296"),
    "attributes.PortInfo": (64,
        "m_key 0, gid_prefix 64, lid 128, sm_lid 144, capability_mask 160, diag_code 192, "
        "m_key_lease_period 208, local_port_num 224, link_width_enabled 232, link_width_supported 240, "
        "link_width_active 248, link_speed_supported 256, state 260, phys_state 264, "
        "link_down_default_state 268, m_key_protect_bits 272, reserved3 274, lmc 277, "
        "link_speed_active 280, link_speed_enabled 284, neighbor_mtu 288, sm_sl 292, vl_cap 296, "
        "init_type 300, vl_high_limit 304, vl_arbitration_high_cap 312, vl_arbitration_low_cap 320, "
        "init_type_reply 328, mtu_cap 332, vl_stall_count 336, hoq_life 339, operational_vls 344, "
        "partition_enforcement_inbound 348, partition_enforcement_outbound 349, "
        "filter_raw_inbound 350, filter_raw_outbound 351, m_key_violations 352, p_key_violations 368, "
        "q_key_violations 384, guid_cap 400, client_reregister 408, "
        "multicast_pkey_trap_suppression 409, subnet_timeout 411, reserved3b 416, resp_time_value 419, "
        "local_phy_errors 424, overrun_errors 428, max_credit_hint 432, reserved1 448, "
        "link_speed_ext2_active 449, link_speed_ext2_supported 451, link_speed_ext2_enabled 453, "
        "link_round_trip_latency 456, capability_mask2 480, link_speed_ext_active 496, "
        "link_speed_ext_supported 500, reserved3c 504, link_speed_ext_enabled 507"),
    "attributes.ClassPortInfo": (72,
        "base_version 0, class_version 8, capability_mask 16, capability_mask2 32, resp_time_value 59, "
        "redirect_gid 64, redirect_traffic_class 192, redirect_sl 200, redirect_flow_label 204, "
        "redirect_lid 224, redirect_pkey 240, reserved8 256, redirect_qpn 264, redirect_qkey 288, "
        "trap_gid 320, trap_traffic_class 448, trap_sl 456, trap_flow_label 460, trap_lid 480, "
        "trap_pkey 496, trap_hop_limit 512, trap_qpn 520, trap_qkey 544"),
    "subnet_attributes.SwitchInfo": (20,
        "linear_fdb_cap 0, random_fdb_cap 16, multicast_fdb_cap 32, linear_fdb_top 48, "
        "default_port 64, default_multicast_primary_port 72, default_multicast_not_primary_port 80, "
        "lifetime 88, port_state_change 93, optimized_sl_to_vl 94, lids_per_port 96, "
        "partition_enforcement_cap 112, inbound_enforcement_cap 128, outbound_enforcement_cap 129, "
        "filter_raw_inbound_cap 130, filter_raw_outbound_cap 131, enhanced_port_zero 132, "
        "reserved11 133, multicast_fdb_top 144"),
    "subnet_attributes.SMInfo": (21,
        "guid 0, sm_key 64, act_count 128, priority 160, sm_state 164"),
    "subnet_attributes.Notice": (64,
        "is_generic 0, type 1, producer_type 8, trap_number 32, issuer_lid 48, notice_toggle 64, "
        "notice_count 65, data_details 80"),
    "subnet_attributes.LinkStateDetails": (54,
        "lid 0, padding 16"),
    "subnet_attributes.CapabilityDetails": (54,
        "reserved16 0, lid 16, reserved8 32, other_changes 40, capability_mask 48, change_flags 80, "
        "padding 96"),
    "subnet_attributes.BadMKeyDetails": (54,
        "reserved16 0, lid 16, dr_slid 32, method 48, reserved8 56, attribute_id 64, "
        "attribute_modifier 80, m_key 112, dr_notice 176, dr_path_truncated 177, dr_hop_count 178, "
        "dr_return_path 184, padding 424"),
    "subnet_attributes.LedInfo": (4,
        "led_mask 0, reserved31 1"),
    "performance_attributes.PortCounters": (44,
        "reserved8 0, port_select 8, counter_select 16, symbol_error 32, link_error_recovery 48, "
        "link_downed 56, rcv_errors 64, rcv_remote_physical_errors 80, rcv_switch_relay_errors 96, "
        "xmit_discards 112, xmit_constraint_errors 128, rcv_constraint_errors 136, "
        "counter_select2 144, local_link_integrity_errors 152, excessive_buffer_overruns 156, "
        "qp1_dropped 160, vl15_dropped 176, xmit_data 192, rcv_data 224, xmit_pkts 256, rcv_pkts 288, "
        "xmit_wait 320"),
    "performance_attributes.PortCountersExtended": (72,
        "reserved8 0, port_select 8, counter_select 16, reserved32 32, xmit_data 64, rcv_data 128, "
        "xmit_pkts 192, rcv_pkts 256, unicast_xmit_pkts 320, unicast_rcv_pkts 384, "
        "multicast_xmit_pkts 448, multicast_rcv_pkts 512"),
    "performance_attributes.PortRcvErrorDetails": (16,
        "reserved8 0, port_select 8, counter_select 16, local_physical_errors 32, "
        "malformed_packet_errors 48, buffer_overrun_errors 64, dlid_mapping_errors 80, "
        "vl_mapping_errors 96, looping_errors 112"),
    "performance_attributes.PortXmitDiscardDetails": (12,
        "reserved8 0, port_select 8, counter_select 16, inactive_discards 32, "
        "neighbor_mtu_discards 48, sw_lifetime_limit_discards 64, sw_hoq_lifetime_limit_discards 80"),
    "performance_attributes.PortXmitDataSL": (68,
        "reserved8 0, port_select 8, counter_select 16, xmit_data_sl0 32, xmit_data_sl1 64, "
        "xmit_data_sl2 96, xmit_data_sl3 128, xmit_data_sl4 160, xmit_data_sl5 192, xmit_data_sl6 224, "
        "xmit_data_sl7 256, xmit_data_sl8 288, xmit_data_sl9 320, xmit_data_sl10 352, "
        "xmit_data_sl11 384, xmit_data_sl12 416, xmit_data_sl13 448, xmit_data_sl14 480, "
        "xmit_data_sl15 512"),
    "performance_attributes.PortRcvDataSL": (68,
        "reserved8 0, port_select 8, counter_select 16, rcv_data_sl0 32, rcv_data_sl1 64, "
        "rcv_data_sl2 96, rcv_data_sl3 128, rcv_data_sl4 160, rcv_data_sl5 192, rcv_data_sl6 224, "
        "rcv_data_sl7 256, rcv_data_sl8 288, rcv_data_sl9 320, rcv_data_sl10 352, rcv_data_sl11 384, "
        "rcv_data_sl12 416, rcv_data_sl13 448, rcv_data_sl14 480, rcv_data_sl15 512"),
    "device_attributes.IoUnitInfo": (132,
        "change_id 0, max_controllers 16, reserved6 24, diag_device_id 30, option_rom 31, "
        "controller_list 32"),
    "device_attributes.IoControllerProfile": (128,
        "guid 0, vendor_id 64, reserved8 88, device_id 96, device_version 128, reserved16 144, "
        "subsystem_vendor_id 160, reserved8b 184, subsystem_id 192, io_class 224, io_subclass 240, "
        "protocol 256, protocol_version 272, service_connections 288, initiators_supported 304, "
        "send_queue_depth 320, reserved8c 336, rdma_read_depth 344, send_bytes 352, rdma_bytes 384, "
        "operations 416, services 424, service_entries 432, reserved72 440, id_string 512"),
    "device_attributes.ServiceEntry": (48,
        "service_name 0, service_id 320"),
    "administration_attributes.AdministrationHeader": (32,
        "rmpp_version 0, rmpp_type 8, rmpp_response_time 16, rmpp_flags 21, rmpp_status 24, "
        "segment_number 32, payload_length 64, sm_key 96, attribute_offset 160, reserved16 176, "
        "component_mask 192"),
    "administration_attributes.NodeRecord": (108,
        "lid 0, reserved_16 16, base_version 32, class_version 40, node_type 48, num_ports 56, "
        "system_image_guid 64, node_guid 128, port_guid 192, partition_cap 256, device_id 272, "
        "revision 288, local_port_num 320, vendor_id 328, node_description 352"),
    "administration_attributes.PortInfoRecord": (68,
        "endport_lid 0, port_num 16, options 24, port_info 32"),
    "administration_attributes.SwitchInfoRecord": (24,
        "lid 0, reserved16 16, switch_info 32"),
    "administration_attributes.SMInfoRecord": (25,
        "lid 0, reserved16 16, sm_info 32"),
    "administration_attributes.LinkRecord": (8,
        "from_lid 0, from_port 16, to_port 24, to_lid 32, reserved16 48"),
    "administration_attributes.ServiceRecord": (176,
        "service_id 0, service_gid 64, service_pkey 192, reserved16 208, lease 224, key 256, name 384, "
        "data 896"),
    "administration_attributes.PathRecord": (64,
        "service_id_msb 0, service_id_lsb 8, dgid 64, sgid 192, dlid 320, slid 336, raw_traffic 352, "
        "reserved3 353, flow_label 356, hop_limit 376, traffic_class 384, reversible 392, "
        "num_path 393, pkey 400, qos_class 416, sl 428, mtu_selector 432, mtu 434, rate_selector 440, "
        "rate 442, packet_lifetime_selector 448, packet_lifetime 450, preference 456, reserved48 464"),
    "administration_attributes.MultiPathRecord": (200,
        "raw_traffic 0, reserved3 1, flow_label 4, hop_limit 24, traffic_class 32, reversible 40, "
        "num_path 41, pkey 48, qos_class 64, sl 76, mtu_selector 80, mtu 82, rate_selector 88, "
        "rate 90, packet_lifetime_selector 96, packet_lifetime 98, service_id_msb 104, "
        "independence_selector 112, reserved6 114, sgid_count 120, dgid_count 128, service_id_lsb 136, "
        "gids 192"),
    "administration_attributes.MCMemberRecord": (52,
        "mgid 0, port_gid 128, qkey 256, mlid 288, mtu_selector 304, mtu 306, traffic_class 312, "
        "pkey 320, rate_selector 336, rate 338, packet_lifetime_selector 344, packet_lifetime 346, "
        "sl 352, flow_label 356, hop_limit 376, scope 384, join_state 388, proxy_join 392, "
        "reserved23 393"),
    "administration_attributes.InformInfo": (36,
        "gid 0, lid_range_begin 128, lid_range_end 144, reserved16 160, is_generic 176, subscribe 184, "
        "type 192, trap_number 208, qpn 224, reserved3 248, resp_time_value 251, reserved8 256, "
        "producer_type 264"),
    "administration_tables.SlToVlRecord": (16,
        "lid 0, input_port 16, output_port 24, reserved32 32, table 64"),
    "administration_tables.LinearForwardingRecord": (72,
        "lid 0, block 16, reserved32 32, table 64"),
    "administration_tables.MulticastForwardingRecord": (72,
        "lid 0, position 16, reserved3 20, block 23, reserved32 32, table 64"),
    "administration_tables.GuidInfoRecord": (72,
        "lid 0, block 16, reserved8 24, reserved32 32, table 64"),
    "administration_tables.PKeyTableRecord": (72,
        "lid 0, block 16, port 32, reserved24 40, table 64"),
    "administration_tables.VlArbitrationRecord": (72,
        "lid 0, output_port 16, block 24, reserved32 32, table 64"),
    "administration_tables.InformInfoRecord": (60,
        "subscriber_gid 0, enumeration 128, reserved48 144, inform_info 192"),
    "cm.messages.Req": (232,
        "local_comm_id 0, reserved32 32, service_id 64, local_ca_guid 128, reserved32b 192, "
        "local_qkey 224, local_qpn 256, responder_resources 280, local_eecn 288, initiator_depth 312, "
        "remote_eecn 320, remote_cm_response_timeout 344, transport_service_type 349, "
        "end_to_end_flow_control 351, starting_psn 352, local_cm_response_timeout 376, "
        "retry_count 381, partition_key 384, path_mtu 400, rdc_exists 404, rnr_retry_count 405, "
        "max_cm_retries 408, srq 412, extended_transport_type 413, primary_local_lid 416, "
        "primary_remote_lid 432, primary_local_gid 448, primary_remote_gid 576, "
        "primary_flow_label 704, primary_reserved6 724, primary_packet_rate 730, "
        "primary_traffic_class 736, primary_hop_limit 744, primary_sl 752, primary_subnet_local 756, "
        "primary_reserved3 757, primary_ack_timeout 760, primary_reserved3b 765, "
        "alternate_local_lid 768, alternate_remote_lid 784, alternate_local_gid 800, "
        "alternate_remote_gid 928, alternate_flow_label 1056, alternate_reserved6 1076, "
        "alternate_packet_rate 1082, alternate_traffic_class 1088, alternate_hop_limit 1096, "
        "alternate_sl 1104, alternate_subnet_local 1108, alternate_reserved3 1109, "
        "alternate_ack_timeout 1112, alternate_reserved3b 1117, private_data 1120"),
    "cm.messages.Mra": (232,
        "local_comm_id 0, remote_comm_id 32, message_mraed 64, reserved6 66, service_timeout 72, "
        "reserved3 77, private_data 80"),
    "cm.messages.Rej": (232,
        "local_comm_id 0, remote_comm_id 32, message_rejected 64, reserved6 66, reject_info_length 72, "
        "reserved1 79, reason 80, ari 96, private_data 672"),
    "cm.messages.Rep": (232,
        "local_comm_id 0, remote_comm_id 32, local_qkey 64, local_qpn 96, reserved8 120, "
        "local_eecn 128, reserved8b 152, starting_psn 160, reserved8c 184, responder_resources 192, "
        "initiator_depth 200, target_ack_delay 208, failover_accepted 213, "
        "end_to_end_flow_control 215, rnr_retry_count 216, srq 219, reserved4 220, local_ca_guid 224, "
        "private_data 288"),
    "cm.messages.Rtu": (232,
        "local_comm_id 0, remote_comm_id 32, private_data 64"),
    "cm.messages.Dreq": (232,
        "local_comm_id 0, remote_comm_id 32, remote_qpn_eecn 64, reserved8 88, private_data 96"),
    "cm.messages.Drep": (232,
        "local_comm_id 0, remote_comm_id 32, private_data 64"),
    "cm.messages.Lap": (232,
        "local_comm_id 0, remote_comm_id 32, reserved32 64, remote_qpn_eecn 96, "
        "remote_cm_response_timeout 120, reserved3 125, reserved32b 128, alternate_local_lid 160, "
        "alternate_remote_lid 176, alternate_local_gid 192, alternate_remote_gid 320, "
        "alternate_flow_label 448, reserved4 468, alternate_traffic_class 472, "
        "alternate_hop_limit 480, reserved2 488, alternate_packet_rate 490, alternate_sl 496, "
        "alternate_subnet_local 500, reserved3b 501, alternate_ack_timeout 504, reserved3c 509, "
        "private_data 512"),
    "cm.messages.Apr": (232,
        "local_comm_id 0, remote_comm_id 32, additional_information_length 64, ap_status 72, "
        "reserved16 80, additional_information 96, private_data 672"),
    "cm.messages.SidrReq": (232,
        "request_id 0, partition_key 32, reserved16 48, service_id 64, private_data 128"),
    "cm.messages.SidrRep": (232,
        "request_id 0, status 32, additional_information_length 40, reserved16 48, qpn 64, "
        "reserved8 88, service_id 96, qkey 160, additional_information 192, private_data 768"),
}
