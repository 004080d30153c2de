// Sets, for the whole process, how closely two computations of the same model agree.
//
//   model::SetNumerics(model::Numerics::kExact);   // before a model is made
#ifndef TANDEM_COMMON_MODEL_NUMERICS_H_
#define TANDEM_COMMON_MODEL_NUMERICS_H_

namespace tandem::model {

enum class Numerics {
  kFast,   // the fastest kernels of the machine
  kExact,  // a token's log-prob has the same bits in any batch, in trainer and rollout
};

// On the CPU both modes run the same code. The default is kFast. Set before anything is computed.
void SetNumerics(Numerics numerics);
Numerics CurrentNumerics();

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_NUMERICS_H_
