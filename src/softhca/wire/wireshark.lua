-- Reads what Wireshark's own dissector does not know or reads wrongly: RD, XRC, ATOMIC WRITE, FLUSH and CNP.
-- All other packets stay with Wireshark.  The tables above are those that softhca itself encodes and decodes by.
--
-- UDP port 4791 needs no setting.  For native frames (link type 247, which Wireshark does not know) say
--   -o 'uat:user_dlts:"User 0 (DLT=147)","softhca_native","0","","0",""'
-- and write the capture with link type 147.

local IBA_PORT = 4791
local ICRC_BYTES, VCRC_BYTES = 4, 2
local LNH_LOCAL, LNH_GLOBAL = 2, 3

local rocev2 = Proto("softhca", "InfiniBand transport by softhca")
local native = Proto("softhca_native", "InfiniBand frames by softhca")
local cut_short = ProtoExpert.new("softhca.cut_short", "Packet is cut short", expert.group.MALFORMED, expert.severity.ERROR)
local bad_length = ProtoExpert.new("softhca.bad_length", "Length or padding is wrong", expert.group.MALFORMED, expert.severity.ERROR)
rocev2.experts = { cut_short, bad_length }

-- one ProtoField a field of a header, by header and name
local fields, all_fields = {}, {}
for name, header in pairs(HEADERS) do
  fields[name] = {}
  for _, field in ipairs(header.layout) do
    local abbreviation = "softhca." .. name .. "." .. field.name
    local made
    if field.bytes then
      made = ProtoField.bytes(abbreviation, field.name)
    elseif name == "bth" and field.name == "opcode" then
      made = ProtoField.uint8(abbreviation, "opcode", base.HEX, OPCODE_NAMES)
    elseif field.bits > 32 then
      made = ProtoField.uint64(abbreviation, field.name, base.HEX)
    else
      made = ProtoField.uint32(abbreviation, field.name, base.DEC_HEX)
    end
    fields[name][field.name] = made
    all_fields[#all_fields + 1] = made
  end
end
local payload_field = ProtoField.bytes("softhca.payload", "payload")
local padding_field = ProtoField.bytes("softhca.padding", "padding")
local icrc_field = ProtoField.uint32("softhca.icrc", "ICRC", base.HEX)
local vcrc_field = ProtoField.uint16("softhca.vcrc", "VCRC", base.HEX)
for _, made in ipairs({ payload_field, padding_field, icrc_field, vcrc_field }) do
  all_fields[#all_fields + 1] = made
end
rocev2.fields = all_fields

-- Adds header `name` at `offset` to `tree`; the offset behind it and its values by name, or nil where it is cut short.
local function add_header(buffer, offset, tree, name)
  local header = HEADERS[name]
  if offset + header.bytes > buffer:len() then
    tree:add_proto_expert_info(cut_short)
    return nil
  end
  local branch = tree:add(rocev2, buffer(offset, header.bytes), string.upper(name))
  local values, bit = {}, 0
  for _, field in ipairs(header.layout) do
    local first, last = math.floor(bit / 8), math.floor((bit + field.bits + 7) / 8)
    local range = buffer(offset + first, last - first)
    if field.bytes then
      branch:add(fields[name][field.name], range)
    else
      local value = range:bitfield(bit - 8 * first, field.bits)
      values[field.name] = value
      branch:add(fields[name][field.name], range, value)
    end
    bit = bit + field.bits
  end
  return offset + header.bytes, values
end

-- The words of the Info column.
local function summary(opcode, values)
  local bth = values.bth
  local words = { opcode.name, string.format("QP=0x%06x PSN=%d", bth.dest_qp, bth.psn) }
  if values.rdeth then words[#words + 1] = string.format("EEC=%d", values.rdeth.ee_context) end
  if values.deth then words[#words + 1] = string.format("source QP=0x%06x", values.deth.source_qp) end
  if values.xrceth then words[#words + 1] = string.format("XRC SRQ=%d", values.xrceth.xrc_srq) end
  if values.reth then words[#words + 1] = string.format("R_Key=0x%08x length=%d", values.reth.rkey, values.reth.dma_length_bytes) end
  if values.aeth then words[#words + 1] = string.format("syndrome=0x%02x MSN=%d", values.aeth.syndrome, values.aeth.msn) end
  return table.concat(words, " ")
end

-- Payload, padding and ICRC, which begin at `offset` and end with the packet at `finish`.
local function add_tail(buffer, offset, finish, tree, opcode, pad)
  local data_end = finish - ICRC_BYTES
  if data_end < offset then
    tree:add_proto_expert_info(cut_short)
    return
  end
  if finish % 4 ~= 0 or pad > data_end - offset or (data_end > offset and not opcode.payload) then
    tree:add_proto_expert_info(bad_length)
    pad = 0
  end
  if data_end - pad > offset then tree:add(payload_field, buffer(offset, data_end - pad - offset)) end
  if pad > 0 then tree:add(padding_field, buffer(data_end - pad, pad)) end
  tree:add(icrc_field, buffer(data_end, ICRC_BYTES))
end

-- Whether the packet whose BTH begins `buffer` is one that Wireshark leaves to this file.
local function is_ours(buffer)
  return buffer:len() > 0 and OPCODES[buffer(0, 1):uint()] ~= nil
end

-- BTH … ICRC.
local function add_transport(buffer, pinfo, tree)
  local opcode = OPCODES[buffer(0, 1):uint()]
  pinfo.cols.protocol = opcode.service
  pinfo.cols.info = opcode.name
  local offset, values = 0, {}
  for _, name in ipairs(opcode.headers) do
    offset, values[name] = add_header(buffer, offset, tree, name)
    if offset == nil then return end
  end
  pinfo.cols.info = summary(opcode, values)
  add_tail(buffer, offset, buffer:len(), tree, opcode, values.bth.pad)
end

local ports = DissectorTable.get("udp.port")
local wiresharks_own = ports:get_dissector(IBA_PORT)

function rocev2.dissector(buffer, pinfo, tree)
  if not is_ours(buffer) then return wiresharks_own and wiresharks_own:call(buffer, pinfo, tree) end
  add_transport(buffer, pinfo, tree:add(rocev2, buffer()))
  return buffer:len()
end
ports:add(IBA_PORT, rocev2)

-- LRH, GRH where there is one, BTH … ICRC, VCRC.
function native.dissector(buffer, pinfo, tree)
  local lnh = buffer:len() >= HEADERS.lrh.bytes and buffer(1, 1):bitfield(6, 2)
  local start = HEADERS.lrh.bytes + (lnh == LNH_GLOBAL and HEADERS.grh.bytes or 0)
  local carries_transport = lnh == LNH_LOCAL or lnh == LNH_GLOBAL
  if not carries_transport or buffer:len() <= start or not is_ours(buffer(start):tvb()) then
    return Dissector.get("infiniband"):call(buffer, pinfo, tree)
  end
  local top = tree:add(native, buffer())
  local _, lrh = add_header(buffer, 0, top, "lrh")
  if lnh == LNH_GLOBAL then add_header(buffer, HEADERS.lrh.bytes, top, "grh") end
  local finish = 4 * lrh.packet_length_words
  if finish <= start or finish > buffer:len() then
    top:add_proto_expert_info(bad_length)
    return buffer:len()
  end
  pinfo.cols.src = string.format("LID %d", lrh.slid)
  pinfo.cols.dst = string.format("LID %d", lrh.dlid)
  add_transport(buffer(start, finish - start):tvb(), pinfo, top)
  if buffer:len() == finish + VCRC_BYTES then top:add(vcrc_field, buffer(finish, VCRC_BYTES)) end
  return buffer:len()
end
