#include "services/trainer/optim/non_finite_gradient.h"

#include <ATen/ops/abs.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::trainer {
namespace {

constexpr int64_t kElementsAtOnce = 1 << 20;

// Returns the index of the first non-finite element. If all are finite, sets `finite` and returns
// the index of the largest.
int64_t WorstElement(const at::Tensor& gradient, bool& finite) {
  finite = false;
  for (int64_t begin = 0; begin < gradient.numel(); begin += kElementsAtOnce) {
    const at::Tensor part =
        gradient.narrow(0, begin, std::min(kElementsAtOnce, gradient.numel() - begin));
    const at::Tensor bad = at::isfinite(part).logical_not();
    if (bad.any().item<bool>()) return begin + at::argmax(bad.to(at::kByte)).item<int64_t>();
  }
  finite = true;
  return at::argmax(gradient.abs()).item<int64_t>();
}

// Position in table.segments() of the tensor that holds an element of a unit.
int64_t SegmentAt(const model::ParameterTable& table, int unit, int64_t element) {
  const std::vector<model::ParameterTable::SegmentRef>& segments = table.segments();
  for (size_t i = 0; i < segments.size(); ++i) {
    const model::Segment& segment = table.segment(segments[i]);
    if (table.parameter(segments[i].parameter).unit == unit && segment.offset <= element &&
        element < segment.offset + segment.numel) {
      return static_cast<int64_t>(i);
    }
  }
  return 0;  // padding, which is always zero: never called for it
}

}  // namespace

absl::StatusOr<std::string> FindNonFiniteGradient(ShardedModel& model, const at::Tensor& squares,
                                                  comm::ProcessGroup& group) {
  const model::ParameterTable& table = model.transformer().table();
  const std::vector<UnitShard>& shards = model.shards();
  const at::Tensor sums = squares.to(at::kCPU);
  // [ranks, 2]: 1 + position of the tensor, 0 if the rank's sums are finite; 1 if the gradient is
  // finite and only its sum of squares overflows.
  at::Tensor found = at::zeros({group.size(), 2}, at::kDouble);
  for (size_t u = 0; u < shards.size(); ++u) {
    if (std::isfinite(sums.const_data_ptr<double>()[u])) continue;
    bool finite = false;
    const int64_t element = shards[u].offset + WorstElement(shards[u].grad, finite);
    double* const row = found.mutable_data_ptr<double>() + int64_t{2} * group.rank();
    row[0] = static_cast<double>(1 + SegmentAt(table, static_cast<int>(u), element));
    row[1] = finite ? 1 : 0;
    break;
  }
  found = found.to(model.device());
  ASSIGN_OR_RETURN(auto work, group.AllReduce(found, comm::ReduceOp::kSum, "non-finite gradients"));
  RETURN_IF_ERROR(work->Wait());
  found = found.to(at::kCPU);
  for (int rank = 0; rank < group.size(); ++rank) {
    const double* const row = found.const_data_ptr<double>() + int64_t{2} * rank;
    if (row[0] == 0) continue;
    if (!(row[0] >= 1 && row[0] <= static_cast<double>(table.segments().size()))) {
      return absl::InternalError(absl::StrCat("non-finite gradients: rank ", rank, " named tensor ",
                                              row[0], " of ", table.segments().size(),
                                              "; what the ranks exchanged is damaged"));
    }
    const auto ref = table.segments()[static_cast<size_t>(row[0]) - 1];
    return absl::StrCat(row[1] == 0 ? "non-finite gradient" : "gradient too large", " in ",
                        table.units()[table.parameter(ref.parameter).unit].name, " (",
                        table.segment(ref).name, ") on rank ", rank);
  }
  // Every rank's sum is finite, but their total is not.
  return std::string("gradients of all ranks too large");
}

}  // namespace tandem::trainer
