/* Groups of an identifier: on RoCEv2 the MGID of an IP group is its address as a GID, on native links the address
   is in it, and the port joins by subnet administration; the rules are those of
   `softhca.driver.rdmacm.groups`.  The library attaches the queue pair when it takes the event. */
#include "cm.h"

#define MULTICAST_QPN 0xFFFFFFU
#define JOIN_MS 2000U
#define FIRST_LID 0xC000
#define LAST_LID 0xFFFE

static void tell(struct identifier *id, struct group *group, struct event *event)
{
    event->group = group;
    event->ucma.uid = group->uid;
    event->ucma.id = group->number;
    file_post(id->file, event);
}

/* On RoCEv2 it takes effect at once. */
static int joined(struct identifier *id, struct group *group)
{
    struct event *event = event_new(id, UCMA_MULTICAST_JOIN);
    if (!event)
        return ENOMEM;
    event->ucma.param.ud.qp_num = MULTICAST_QPN;
    event->ucma.param.ud.qkey = id->qkey;
    cm_vector(id, group->gid, &event->ucma.param.ud.ah_attr);
    tell(id, group, event);
    return 0;
}

int group_join(struct identifier *id, uint64_t response, uint64_t uid, const void *address, size_t bytes)
{
    static uint32_t numbers;
    struct group *group;
    struct ip ip;
    uint8_t after;
    int error = ip_parse(address, bytes, &ip);
    error = error ? error : state_after(id, CM_JOIN, &after);
    if (error)
        return error;
    if (!id->place || !ip_is_group(&ip) || ip.version != id->source.version)
        return EINVAL;
    for (group = id->groups; group; group = group->next)
        if (!memcmp(group->gid, ip.gid, 16))
            return EADDRINUSE;
    group = calloc(1, sizeof *group);
    if (!group)
        return ENOMEM;
    group->number = ++numbers;
    group->uid = uid;
    memcpy(group->gid, ip.gid, 16);
    error = id->place->native ? group_ask(id, group, &ip, JOIN_MS) : joined(id, group);
    if (error) {
        free(group);
        return error;
    }
    group->next = id->groups;
    id->groups = group;
    memcpy((void *)(uintptr_t)response, &group->number, sizeof group->number);
    return 0;
}

void group_found(struct identifier *id, struct group *group, int error, const struct membership *found)
{
    struct event *event;
    if (!error && (found->lid < FIRST_LID || found->lid > LAST_LID))
        error = EADDRNOTAVAIL;
    event = event_new(id, error ? UCMA_MULTICAST_ERROR : UCMA_MULTICAST_JOIN);
    if (!event)
        return;
    event->ucma.status = (uint32_t)-error;
    if (!error) {
        struct ucma_ah_attr *vector = &event->ucma.param.ud.ah_attr;
        event->ucma.param.ud.qp_num = MULTICAST_QPN;
        event->ucma.param.ud.qkey = found->qkey;
        memcpy(vector->dgid, found->mgid, 16);
        vector->is_global = 1;
        vector->sgid_index = id->place->index;
        vector->port_num = id->place->port->number;
        vector->dlid = found->lid;
        vector->sl = found->sl;
        vector->flow_label = found->flow_label;
        vector->traffic_class = id->traffic_class;
        vector->hop_limit = found->hop_limit ? found->hop_limit : 1;
    }
    tell(id, group, event);
}

int group_leave(struct file *file, uint32_t number, uint32_t *reported)
{
    struct identifier *id;
    uint32_t handle = 0;
    while ((id = identifier_next(&handle))) {
        struct group **each = &id->groups, *group;
        while (id->file == file && *each && (*each)->number != number)
            each = &(*each)->next;
        if (id->file != file || !*each)
            continue;
        group = *each;
        *each = group->next;
        file_move(file, NULL, id, group);
        *reported = group->events_reported;
        free(group);
        return 0;
    }
    return ENOENT;
}
