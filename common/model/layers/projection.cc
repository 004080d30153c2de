#include "common/model/layers/projection.h"

#include <ATen/ops/add.h>

#include "common/model/linear.h"
#include "common/model/tensor_collectives.h"

namespace tandem::model {
namespace {

at::Tensor Project(const ParameterProvider& params, const at::Tensor& x, int weight, int bias) {
  return Linear(x, params.Get(weight), OptionalParameter(params, bias), params.Packed(weight));
}

}  // namespace

std::optional<at::Tensor> OptionalParameter(const ParameterProvider& params, int index) {
  if (index < 0) return std::nullopt;
  return params.Get(index);
}

at::Tensor ColumnParallel(const LayerContext& context, const at::Tensor& x, int weight, int bias,
                          const char* tag) {
  // All ranks' rows contribute to the gradient of x.
  return Project(context.params, CopyToRanks(x, context.tensor_group, tag), weight, bias);
}

at::Tensor RowParallel(const LayerContext& context, const at::Tensor& x, int weight, int bias,
                       const char* tag) {
  if (context.tensor_group == nullptr) return Project(context.params, x, weight, bias);
  const at::Tensor sum =
      SumOverRanks(Project(context.params, x, weight, -1), context.tensor_group, tag);
  return bias < 0 ? sum : at::add(sum, context.params.Get(bias));
}

}  // namespace tandem::model
