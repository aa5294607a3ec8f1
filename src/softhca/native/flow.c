/* Flow steering: a rule's specifications become value and mask over the key of a frame (wire/ethernet.py). */
#include "library.h"

enum {
    NORMAL = 0, /* ibv_flow_attr_type */
    SPEC_ETH = 0x20, /* ibv_flow_spec_type */
    SPEC_IPV4 = 0x30,
    SPEC_IPV6 = 0x31,
    SPEC_IPV4_EXT = 0x32,
    SPEC_TCP = 0x40,
    SPEC_UDP = 0x41,
    KEY_BYTES = 64,
    L3 = 16,
    L4 = 60
};

struct rule {
    unsigned char value[KEY_BYTES], mask[KEY_BYTES];
};

/* One field: its place in a specification's value, in the key, and its bytes. */
struct field {
    uint8_t from, to, bytes;
};

/* One kind of specification: where its value begins, how long value and mask are each, and where in the key
   stands that a frame has this header. */
struct kind {
    uint32_t type;
    uint8_t value_at, value_bytes, header_at, header;
    struct field fields[6];
};

static const struct kind kinds[] = {
    {SPEC_ETH, 6, 16, 0, 0, {{0, 0, 6}, {6, 6, 6}, {12, 12, 2}, {14, 14, 2}}},
    {SPEC_IPV4, 8, 8, L3, 4, {{0, 24, 4}, {4, 40, 4}}},
    {SPEC_IPV4_EXT, 8, 12, L3, 4, {{0, 24, 4}, {4, 40, 4}, {8, 17, 1}, {9, 18, 1}, {10, 19, 1}, {11, 20, 1}}},
    {SPEC_IPV6, 8, 40, L3, 6, {{0, 24, 16}, {16, 40, 16}, {33, 21, 3}, {36, 17, 1}, {37, 18, 1}, {38, 19, 1}}},
    {SPEC_TCP, 6, 4, L4, 6, {{0, 58, 2}, {2, 56, 2}}},
    {SPEC_UDP, 6, 4, L4, 17, {{0, 58, 2}, {2, 56, 2}}},
};

/* Have the rule ask for these bits too; EINVAL where it asks for others already. */
static int put(struct rule *rule, unsigned place, const unsigned char *value, const unsigned char *mask,
               unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        if ((rule->value[place + i] ^ value[i]) & rule->mask[place + i] & mask[i])
            return EINVAL;
        rule->value[place + i] |= value[i] & mask[i];
        rule->mask[place + i] |= mask[i];
    }
    return 0;
}

static int put_spec(struct rule *rule, uint32_t type, const unsigned char *spec, unsigned size)
{
    static const unsigned char whole = 0xff;
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct kind *kind = kinds + i;
        const unsigned char *value = spec + kind->value_at, *mask = value + kind->value_bytes;
        int error = 0;
        if (kind->type != type)
            continue;
        if (size < (unsigned)kind->value_at + 2u * kind->value_bytes)
            return EINVAL;
        if (kind->header)
            error = put(rule, kind->header_at, &kind->header, &whole, 1);
        for (unsigned j = 0; !error && j < 6 && kind->fields[j].bytes; j++)
            error = put(rule, kind->fields[j].to, value + kind->fields[j].from, mask + kind->fields[j].from,
                        kind->fields[j].bytes);
        return error;
    }
    return EOPNOTSUPP;
}

/* The specifications that follow the attributes; errno. */
static int put_specs(struct rule *rule, const struct ibv_flow_attr *attr)
{
    const unsigned char *at = (const unsigned char *)(attr + 1);
    for (unsigned i = 0; i < attr->num_of_specs; i++) {
        struct flow_spec spec;
        int error;
        memcpy(&spec, at, sizeof spec);
        if (spec.size < sizeof spec)
            return EINVAL;
        error = put_spec(rule, spec.type, at, spec.size);
        if (error)
            return error;
        at += spec.size;
    }
    return 0;
}

static struct ibv_flow *create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr)
{
    struct softhca_create_flow fields = {.qp_num = qp->qp_num, .priority = attr->priority,
                                         .port_num = attr->port, .type = (uint8_t)attr->type};
    struct softhca_create_flow_reply reply;
    struct rule rule = {{0}, {0}};
    struct ibv_flow *flow;
    int error = attr->comp_mask || attr->type > 0xff ? EINVAL : attr->flags ? EOPNOTSUPP : 0;
    if (!error && attr->type == NORMAL) {
        error = put_specs(&rule, attr);
        fields.value = rule.value;
        fields.mask = rule.mask;
        fields.value_bytes = fields.mask_bytes = KEY_BYTES;
    } else if (!error && attr->num_of_specs) {
        error = EINVAL;
    }
    flow = error ? NULL : calloc(1, sizeof *flow);
    if (!flow)
        return failed(error ? error : ENOMEM);
    CALL(HOST(qp->context), error, create_flow, &fields, &reply);
    if (error) {
        free(flow);
        return failed(error);
    }
    flow->context = qp->context;
    flow->handle = reply.flow;
    return flow;
}

static int destroy_flow(struct ibv_flow *flow)
{
    struct softhca_destroy_flow fields = {.flow = flow->handle};
    struct host *host = HOST(flow->context);
    int error;
    TELL(host, error, destroy_flow, &fields);
    if (error && !host->dead)
        return said(error);
    free(flow);
    return 0;
}

void set_flow_ops(struct verbs_front *front)
{
    front->create_flow = create_flow;
    front->destroy_flow = destroy_flow;
}
