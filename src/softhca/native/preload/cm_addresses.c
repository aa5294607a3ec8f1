/* Socket addresses as GIDs: on RoCEv2 a GID is an IP address, IPv4 ones are mapped (RFC 4291, 2.5.5.2). */
#include "cm.h"

#include <arpa/inet.h>

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

static int is_mapped(const uint8_t *gid)
{
    return !memcmp(gid, mapped, sizeof mapped);
}

void ip_of_gid(const uint8_t *gid, uint16_t port, struct ip *found)
{
    memset(found, 0, sizeof *found);
    memcpy(found->gid, gid, 16);
    found->port = port;
    found->version = is_mapped(gid) ? 4 : 6;
}

int ip_parse(const void *address, size_t bytes, struct ip *found)
{
    struct sockaddr_storage whole;
    const struct sockaddr_in *four = (const void *)&whole;
    const struct sockaddr_in6 *six = (const void *)&whole;
    memset(&whole, 0, sizeof whole);
    memcpy(&whole, address, bytes < sizeof whole ? bytes : sizeof whole);
    memset(found, 0, sizeof *found);
    if (whole.ss_family == AF_INET && bytes >= sizeof *four) {
        memcpy(found->gid, mapped, sizeof mapped);
        memcpy(found->gid + 12, &four->sin_addr, 4);
        found->version = 4;
        found->port = ntohs(four->sin_port);
    } else if (whole.ss_family == AF_INET6 && bytes >= sizeof *six) {
        ip_of_gid(six->sin6_addr.s6_addr, ntohs(six->sin6_port), found);
        found->scope = six->sin6_scope_id;
    } else {
        return whole.ss_family == AF_INET || whole.ss_family == AF_INET6 ? EINVAL : EAFNOSUPPORT;
    }
    return 0;
}

void ip_write(const struct ip *ip, void *address)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(ip->port)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(ip->port),
                               .sin6_scope_id = ip->scope};
    if (ip->version == 4) {
        memcpy(&four.sin_addr, ip->gid + 12, 4);
        memcpy(address, &four, sizeof four);
    } else if (ip->version) {
        memcpy(&six.sin6_addr, ip->gid, 16);
        memcpy(address, &six, sizeof six);
    }
}

int ip_is_any(const struct ip *ip)
{
    static const uint8_t none[16];
    return ip->version == 4 ? !memcmp(ip->gid + 12, none, 4) : !memcmp(ip->gid, none, 16);
}

int ip_is_group(const struct ip *ip)
{
    return ip->version == 4 ? (ip->gid[12] & 0xf0) == 0xe0 : ip->gid[0] == 0xff;
}

int gid_is_loopback(const uint8_t *gid)
{
    static const uint8_t one[16] = {[15] = 1};
    return is_mapped(gid) ? gid[12] == 127 : !memcmp(gid, one, 16);
}

int ip_is_localhost(const struct ip *ip)
{
    static const uint8_t localhost[4] = {127, 0, 0, 1};
    return ip->version == 4 ? !memcmp(ip->gid + 12, localhost, 4) : gid_is_loopback(ip->gid);
}
