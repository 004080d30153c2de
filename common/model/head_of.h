// HeadOf(): a model's output projection, out of its parameters.
#ifndef TANDEM_COMMON_MODEL_HEAD_OF_H_
#define TANDEM_COMMON_MODEL_HEAD_OF_H_

#include "common/model/head.h"
#include "common/model/parameter_provider.h"
#include "common/model/transformer.h"

namespace tandem::model {

// Over a tensor-parallel group, this rank's part of it.
LmHead HeadOf(const Transformer& model, const ParameterProvider& params);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_HEAD_OF_H_
