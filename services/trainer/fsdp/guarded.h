// Turns LibTorch's exceptions into a Status.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_GUARDED_H_
#define TANDEM_SERVICES_TRAINER_FSDP_GUARDED_H_

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/host/memory_limit.h"
#include "common/model/tensor_collectives.h"
#include "common/status/status_macros.h"

namespace tandem::trainer {

// Returns the result of `function`; if it throws, an error that names rank and place. Result: a
// Status or a StatusOr. RESOURCE_EXHAUSTED if memory or disk is short, the collective's error if
// one inside a matrix product failed, INTERNAL otherwise.
template <typename Result, typename Function>
Result Guarded(int rank, const std::string& place, Function function) {
  constexpr char kHint[] =
      "; use more ranks, smaller micro-batches, activation_checkpointing or offload=disk";
  try {
    return function();
  } catch (const c10::OutOfMemoryError& e) {
    return absl::ResourceExhaustedError(
        absl::StrCat("rank ", rank, ", ", place, ": ", e.what_without_backtrace(), kHint));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "rank ", rank, ", ", place, ": out of memory: ", host::DescribeMemoryLimits(), kHint));
  } catch (const model::CollectiveError& e) {
    return StatusBuilder(e.status()) << "rank " << rank << ", " << place;
  } catch (const c10::Error& e) {
    return absl::InternalError(
        absl::StrCat("rank ", rank, ", ", place, ": ", e.what_without_backtrace()));
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat("rank ", rank, ", ", place, ": ", e.what()));
  }
}

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_GUARDED_H_
