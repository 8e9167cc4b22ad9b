//go:build onednn

// Products and recurrent steps with oneDNN.
#ifndef PEERS_ONEDNN_STEP_H
#define PEERS_ONEDNN_STEP_H

#ifdef __cplusplus
extern "C" {
#endif

enum dn_step_kind { DN_STEP_PRODUCT, DN_STEP_LSTM, DN_STEP_GRU };

struct dn_step_model; // weights as they were given
struct dn_step_call;  // a batch with packed weights

// Functions that can fail put an error into the buffer, of DN_STEP_ERROR bytes,
// and return NULL or something other than 0.
#define DN_STEP_ERROR 256

void dn_step_threads(int n);
const char *dn_step_version(void); // with the instructions in use

struct dn_step_model *dn_step_load(enum dn_step_kind kind, int inputs, int units, int bf16, const float *weight,
                             const float *recurrent, const float *bias, const float *recurrent_bias, char *error);
struct dn_step_call *dn_step_bind(const struct dn_step_model *m, int rows, const float *x, const float *h, const float *c,
                            char *error);
int dn_step_run(struct dn_step_call *b, char *error);
int dn_step_output(struct dn_step_call *b, float *to, char *error);
const char *dn_step_detail(const struct dn_step_call *b); // the implementation that the library chose
void dn_step_unbind(struct dn_step_call *b);
void dn_step_unload(struct dn_step_model *m);

#ifdef __cplusplus
}
#endif

#endif
