#include "services/trainer/fsdp/sharded_model.h"

#include <exception>

#include "absl/strings/str_cat.h"
#include "common/comm/run_with_deadline.h"
#include "common/status/status_macros.h"

namespace tandem::trainer {

absl::StatusOr<double> ShardedModel::ValueOf(absl::StatusOr<at::Tensor> loss) {
  RETURN_IF_ERROR(loss.status());
  if (!loss->defined()) return 0.0;
  try {
    return loss->item<double>();
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("the loss: ", comm::FirstLine(error.what())));
  }
}

}  // namespace tandem::trainer
