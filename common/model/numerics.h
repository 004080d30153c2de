// How closely two computations of the same model agree; of the whole process.
//
//   model::SetNumerics(model::Numerics::kExact);   // before a model is made
#ifndef TANDEM_COMMON_MODEL_NUMERICS_H_
#define TANDEM_COMMON_MODEL_NUMERICS_H_

namespace tandem::model {

enum class Numerics {
  kFast,   // the fastest kernels of the machine
  kExact,  // a token's log-prob has the same bits whatever shares the batch, and on either side
};

// On the CPU the two are one code. The default is kFast. To be set before anything is computed.
void SetNumerics(Numerics numerics);
Numerics CurrentNumerics();

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_NUMERICS_H_
