/* A client of an adapter process, in C: PD, MR, CQ, two RC queue pairs of the same adapter, 1 MiB by RDMA WRITE.

   host_interface_client SOCKET ('@': an abstract name).  Status 0 when the bytes and the completion are right. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "softhca.h"

#define MEMORY_BYTES (16u << 20)
#define DATA_BYTES (1u << 20)
#define CHECK(what) ((what) ? (void)0 : fail(#what))

static void fail(const char *what)
{
    fprintf(stderr, "failed: %s (errno %d)\n", what, errno);
    exit(1);
}

static unsigned char *memory;     /* what the adapter maps too */
static uint32_t next_page = 1;    /* page 0 is never used; a frame of the first slot is its page */
static int control, wake_socket;
static uint64_t *flag;
static uint32_t doorbell_page;

static uint32_t pages(uint32_t count)
{
    uint32_t first = next_page;
    CHECK((next_page += count) <= MEMORY_BYTES / SOFTHCA_PAGE_BYTES);
    return first;
}

struct ring {
    struct softhca_ring *control;
    struct softhca_reference *references;
    unsigned char *bodies;
    uint32_t entries, body_bytes, body_tail;
    uint64_t tail, head;
    struct softhca_run run;
};

static struct ring make_ring(uint32_t entries, uint32_t body_bytes)
{
    uint32_t body_pages = (body_bytes + 4095) / 4096, reference_pages = (entries * 8 + 4095) / 4096;
    struct ring ring = {.entries = entries, .body_bytes = body_bytes};
    ring.run.count = 1 + reference_pages + body_pages;
    ring.run.first = pages(ring.run.count);
    ring.control = (void *)(memory + (size_t)ring.run.first * 4096);
    ring.references = (void *)((unsigned char *)ring.control + 4096);
    ring.bodies = (unsigned char *)ring.references + (size_t)reference_pages * 4096;
    return ring;
}

/* One entry at a time: whoever waits until the last one is released need not know how much room there is. */
static void push(struct ring *ring, const void *entry, uint32_t bytes)
{
    struct softhca_reference *reference = &ring->references[ring->tail % ring->entries];
    uint32_t before_end = ring->body_bytes - ring->body_tail;
    CHECK(__atomic_load_n(&ring->control->head, __ATOMIC_ACQUIRE) == ring->tail && bytes <= ring->body_bytes);
    before_end = bytes < before_end ? bytes : before_end;
    memcpy(ring->bodies + ring->body_tail, entry, before_end);
    memcpy(ring->bodies, (const char *)entry + before_end, bytes - before_end);
    *reference = (struct softhca_reference){ring->body_tail, bytes};
    ring->body_tail = (ring->body_tail + bytes) % ring->body_bytes;
    __atomic_store_n(&ring->control->tail, ++ring->tail, __ATOMIC_RELEASE);
}

/* The next entry's bytes, 0 where there is none; what the adapter wrote is checked before it is used. */
static uint32_t take(struct ring *ring, void *entry, uint32_t room)
{
    uint64_t tail = __atomic_load_n(&ring->control->tail, __ATOMIC_ACQUIRE);
    struct softhca_reference reference = ring->references[ring->head % ring->entries];
    uint32_t before_end;
    if (tail == ring->head)
        return 0;
    CHECK(tail - ring->head <= ring->entries && reference.body_bytes && reference.body_bytes <= room);
    CHECK(reference.body_offset < ring->body_bytes && reference.body_bytes <= ring->body_bytes);
    before_end = ring->body_bytes - reference.body_offset;
    before_end = reference.body_bytes < before_end ? reference.body_bytes : before_end;
    memcpy(entry, ring->bodies + reference.body_offset, before_end);
    memcpy((char *)entry + before_end, ring->bodies, reference.body_bytes - before_end);
    __atomic_store_n(&ring->control->head, ++ring->head, __ATOMIC_RELEASE);
    return reference.body_bytes;
}

static void kick(void)
{
    uint64_t asleep = SOFTHCA_ADAPTER_ASLEEP;
    if (__atomic_compare_exchange_n(flag, &asleep, SOFTHCA_ADAPTER_AWAKE, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        send(wake_socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static uint32_t wait_for(struct ring *ring, void *entry, uint32_t room)
{
    uint32_t bytes;
    char rung[64];
    while (!(bytes = take(ring, entry, room))) {
        struct pollfd both[] = {{wake_socket, POLLIN, 0}, {control, POLLIN, 0}};
        CHECK(poll(both, 2, 30000) > 0 && !both[1].revents); /* its end of the socket tells of its death */
        recv(wake_socket, rung, sizeof rung, MSG_DONTWAIT);
    }
    return bytes;
}

static struct ring commands, replies, events;
static unsigned char out[SOFTHCA_REPLY_BYTES], in[SOFTHCA_REPLY_BYTES];

static uint32_t ask(size_t bytes)
{
    CHECK(bytes);
    push(&commands, out, (uint32_t)bytes);
    kick();
    return wait_for(&replies, in, sizeof in);
}

#define ASK(name, ...) ask(softhca_encode_##name(out, sizeof out, 1, ##__VA_ARGS__))

static const unsigned char probe[SOFTHCA_PROBE_BYTES + 1] = "a word of my own";

static void attach(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } passed = {0};
    struct iovec piece = {out, 0};
    struct msghdr packet = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &passed,
                            .msg_controllen = sizeof passed};
    struct softhca_run doorbells = {0, SOFTHCA_DOORBELL_PAGES}, rings[3];
    struct softhca_message_attach fields = {.control = rings, .control_count = 3, .doorbells = &doorbells,
                                            .doorbells_count = 1, .probe = (uintptr_t)probe};
    struct softhca_message_attach_answer answer;
    ssize_t got;
    int fd = memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && !ftruncate(fd, MEMORY_BYTES));
    CHECK(!fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
    memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(memory != MAP_FAILED && strlen(path) < sizeof address.sun_path);
    strcpy(address.sun_path, path);
    if (*path == '@')
        address.sun_path[0] = 0;
    control = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(!connect(control, (struct sockaddr *)&address, length));
    commands = make_ring(SOFTHCA_COMMAND_ENTRIES, SOFTHCA_COMMAND_BODY_BYTES);
    replies = make_ring(SOFTHCA_COMMAND_ENTRIES, SOFTHCA_REPLY_BODY_BYTES);
    events = make_ring(SOFTHCA_EVENT_ENTRIES, SOFTHCA_EVENT_BODY_BYTES);
    rings[0] = commands.run, rings[1] = replies.run, rings[2] = events.run;
    doorbells.first = doorbell_page = pages(doorbells.count);
    fields.flag = pages(1);
    flag = (uint64_t *)(memory + (size_t)fields.flag * 4096);
    memcpy(fields.probe_bytes, probe, sizeof fields.probe_bytes);
    piece.iov_len = softhca_encode_message_attach(out, sizeof out, &fields);
    passed.header = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&passed.header), &fd, sizeof fd);
    CHECK(piece.iov_len && sendmsg(control, &packet, MSG_NOSIGNAL) == (ssize_t)piece.iov_len);
    piece = (struct iovec){in, sizeof in};
    packet.msg_controllen = sizeof passed;
    CHECK((got = recvmsg(control, &packet, MSG_CMSG_CLOEXEC)) > 0);
    errno = softhca_decode_message_attach_answer(in, (size_t)got, &answer);
    CHECK(!errno && packet.msg_controllen && passed.header.cmsg_len == CMSG_LEN(sizeof wake_socket));
    memcpy(&wake_socket, CMSG_DATA(&passed.header), sizeof wake_socket);
}

static void detach(void)
{
    struct softhca_message_detach_answer answer;
    size_t bytes = softhca_encode_message_detach(out, sizeof out);
    CHECK(send(control, out, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
    ssize_t got = recv(control, in, sizeof in, 0);
    CHECK(got > 0 && !softhca_decode_message_detach_answer(in, (size_t)got, &answer));
    close(control);
}

/* RESET to RTS, connected to the queue pair `peer` behind the same port. */
static void connect_pair(uint32_t number, uint32_t peer, const uint8_t *gid)
{
    struct softhca_modify_qp to = {.qp_num = number, .qp_state = SOFTHCA_STATE_INIT, .port_num = 1};
    to.qp_access_flags = SOFTHCA_ACCESS_REMOTE_WRITE;
    to.attr_mask = SOFTHCA_ATTR_QP_STATE | SOFTHCA_ATTR_PKEY_INDEX | SOFTHCA_ATTR_PORT_NUM
        | SOFTHCA_ATTR_QP_ACCESS_FLAGS;
    CHECK(!softhca_decode_modify_qp_reply(in, ASK(modify_qp, &to)));
    to = (struct softhca_modify_qp){.qp_num = number, .qp_state = SOFTHCA_STATE_RTR, .path_mtu = 5,
        .dest_qp_num = peer, .max_dest_rd_atomic = 1, .min_rnr_timer = 12, .ah_is_global = 1, .ah_port_num = 1,
        .ah_hop_limit = 64};
    memcpy(to.ah_dgid, gid, sizeof to.ah_dgid);
    to.attr_mask = SOFTHCA_ATTR_QP_STATE | SOFTHCA_ATTR_AH_ATTR | SOFTHCA_ATTR_PATH_MTU
        | SOFTHCA_ATTR_DEST_QP_NUM | SOFTHCA_ATTR_RQ_PSN | SOFTHCA_ATTR_MAX_DEST_RD_ATOMIC
        | SOFTHCA_ATTR_MIN_RNR_TIMER;
    CHECK(!softhca_decode_modify_qp_reply(in, ASK(modify_qp, &to)));
    to = (struct softhca_modify_qp){.qp_num = number, .qp_state = SOFTHCA_STATE_RTS, .timeout = 14,
        .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    to.attr_mask = SOFTHCA_ATTR_QP_STATE | SOFTHCA_ATTR_SQ_PSN | SOFTHCA_ATTR_TIMEOUT | SOFTHCA_ATTR_RETRY_CNT
        | SOFTHCA_ATTR_RNR_RETRY | SOFTHCA_ATTR_MAX_RD_ATOMIC;
    CHECK(!softhca_decode_modify_qp_reply(in, ASK(modify_qp, &to)));
}

static void ring_doorbell(uint32_t slot)
{
    const uint32_t words = SOFTHCA_DOORBELL_SLOTS;
    struct softhca_doorbells *doorbells = (void *)(memory + (size_t)doorbell_page * 4096);
    uint64_t *pending = (uint64_t *)(doorbells + 1), *places = pending + words, none = 0;
    if (__atomic_compare_exchange_n(&pending[slot], &none, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        uint64_t place = __atomic_fetch_add(&doorbells->tail, 1, __ATOMIC_SEQ_CST);
        __atomic_store_n(&places[place % words], slot + 1, __ATOMIC_RELEASE);
    }
}

int main(int count, char **arguments)
{
    struct softhca_query_gid query_gid = {.port_num = 1};
    struct softhca_query_gid_reply gid;
    struct softhca_alloc_pd_reply pd;
    struct softhca_reg_mr_reply mr;
    struct softhca_create_cq_reply cq;
    struct softhca_create_qp_reply qp[2];
    struct ring completions, sends[2], receives;
    struct { struct softhca_send_wqe wqe; struct softhca_sge sge; } post = {0};
    struct softhca_event event;
    struct softhca_cqe cqe;
    unsigned char *data;
    uint64_t none = SOFTHCA_ARM_NONE;
    CHECK(count == 2);
    attach(arguments[1]);
    CHECK(!softhca_decode_query_gid_reply(in, ASK(query_gid, &query_gid), &gid));
    CHECK(!softhca_decode_alloc_pd_reply(in, ASK(alloc_pd), &pd));
    struct softhca_run frames = {pages(2 * DATA_BYTES / 4096), 2 * DATA_BYTES / 4096};
    struct softhca_reg_mr region = {.pd = pd.pd, .access = SOFTHCA_ACCESS_LOCAL_WRITE
        | SOFTHCA_ACCESS_REMOTE_WRITE, .length = 2 * DATA_BYTES, .frames = &frames, .frames_count = 1};
    data = memory + (size_t)frames.first * 4096;
    region.va = (uintptr_t)data;
    CHECK(!softhca_decode_reg_mr_reply(in, ASK(reg_mr, &region), &mr));
    completions = make_ring(16, 16 * sizeof cqe);
    struct softhca_create_cq create_cq = {.entries = 16, .body_bytes = 16 * sizeof cqe,
                                          .frames = &completions.run, .frames_count = 1};
    CHECK(!softhca_decode_create_cq_reply(in, ASK(create_cq, &create_cq), &cq));
    for (int i = 0; i < 2; i++) {
        sends[i] = make_ring(1, sizeof post);
        receives = make_ring(1, sizeof(struct softhca_recv_wqe) + sizeof(struct softhca_sge));
        struct softhca_create_qp create = {.qp_type = SOFTHCA_QPT_RC, .pd = pd.pd, .send_cq = cq.cq,
            .recv_cq = cq.cq, .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1,
            .send_entries = 1, .send_body_bytes = sizeof post, .send_frames = &sends[i].run,
            .send_frames_count = 1, .recv_entries = 1, .recv_body_bytes = receives.body_bytes,
            .recv_frames = &receives.run, .recv_frames_count = 1};
        CHECK(!softhca_decode_create_qp_reply(in, ASK(create_qp, &create), &qp[i]));
    }
    char reason[SOFTHCA_REASON_BYTES + 1];
    struct softhca_modify_qp wrong = {.qp_num = qp[0].qp_num, .qp_state = SOFTHCA_STATE_INIT,
        .attr_mask = SOFTHCA_ATTR_QP_STATE};
    uint32_t refusal = ASK(modify_qp, &wrong);
    CHECK(softhca_decode_modify_qp_reply(in, refusal) == EINVAL);
    CHECK(strstr(softhca_reason(in, refusal, reason, sizeof reason), "pkey_index is required"));
    CHECK(!strcmp(softhca_reason(in, refusal, reason, 5), "pkey") && !*softhca_reason(in, 3, reason, 5));
    for (int i = 0; i < 2; i++)
        connect_pair(qp[i].qp_num, qp[!i].qp_num, gid.gid);

    for (uint32_t i = 0; i < DATA_BYTES; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 24);
    CHECK(__atomic_compare_exchange_n(&completions.control->arm, &none, SOFTHCA_ARM_NEXT, 0, __ATOMIC_SEQ_CST,
                                      __ATOMIC_SEQ_CST));
    post.wqe = (struct softhca_send_wqe){.opcode = SOFTHCA_RDMA_WRITE, .flags = SOFTHCA_SIGNALED, .num_sge = 1,
        .wr_id = 4711, .remote_va = region.va + DATA_BYTES, .rkey = mr.rkey};
    post.sge = (struct softhca_sge){region.va, DATA_BYTES, mr.lkey};
    push(&sends[0], &post, sizeof post);
    ring_doorbell(qp[0].doorbell);
    kick();
    CHECK(wait_for(&events, &event, sizeof event) == sizeof event);
    CHECK(event.kind == SOFTHCA_EVENT_COMPLETION && event.element == cq.cq);
    CHECK(take(&completions, &cqe, sizeof cqe) == sizeof cqe);
    CHECK(cqe.status == SOFTHCA_WC_SUCCESS && cqe.opcode == SOFTHCA_WC_RDMA_WRITE && cqe.wr_id == 4711);
    CHECK(cqe.qp_num == qp[0].qp_num && !take(&completions, &cqe, sizeof cqe));
    CHECK(!memcmp(data, data + DATA_BYTES, DATA_BYTES));
    detach();
    puts("1 MiB was written");
    return 0;
}
