/* What the fuzzers of the library share: a device of the adapter process within the program, and steps on it. */
#ifndef SOFTHCA_FUZZ_LIBRARY_H
#define SOFTHCA_FUZZ_LIBRARY_H

#include "library.h"

#include "fuzz_adapter.h"

extern struct ibv_pd *ibv_alloc_pd(struct ibv_context *);
extern struct ibv_mr *ibv_reg_mr(struct ibv_pd *, void *, size_t, int);
extern int ibv_dereg_mr(struct ibv_mr *);
extern int ibv_destroy_cq(struct ibv_cq *);
extern int ibv_destroy_qp(struct ibv_qp *);
extern int ibv_destroy_srq(struct ibv_srq *);

static struct ibv_context *context;
static struct ibv_pd *pd;

/* A completion as the input has it, but rather of `qp`, where there is one. */
static void complete(struct ibv_cq *cq, const struct ibv_qp *qp)
{
    struct softhca_cqe cqe;
    if (!cq)
        return;
    fed_bytes(&cqe, sizeof cqe);
    if (qp && fed() % 4)
        cqe.qp_num = qp->qp_num;
    adapter_scribble(&CQ(cq)->ring, &cqe, sizeof cqe);
}

/* Open the device, `begin` on it, at most `steps` times `step` while there is input, and `finish`: that gives back
   all but the context and the domain, whatever the adapter would say of it. */
static void play(const unsigned char *bytes, size_t count, int steps, void (*begin)(void), void (*step)(void),
                 void (*finish)(void))
{
    static struct device *device;
    adapter_begin(bytes, count);
    if (!device)
        device = device_at("fuzz", "@fuzz");
    adapter_honest = fed() % 8 != 0;
    context = open_context(device);
    adapter_honest = 1;
    if (context) {
        pd = ibv_alloc_pd(context);
        begin();
        adapter_honest = fed() % 2;
        for (int i = 0; pd && i < steps && fed_more(); i++)
            step();
        HOST(context)->dead = EIO;
        finish();
        free(pd);
        pd = NULL;
        ibv_close_device(context);
    }
    adapter_end();
}

#endif
