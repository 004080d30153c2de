#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/comm/nccl_api.h"

namespace tandem::comm {
namespace {

ABSL_CONST_INIT absl::Mutex mu(absl::kConstInit);

// Null: NCCL.
MakeNcclApi& Registered() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
  static MakeNcclApi& make = *new MakeNcclApi();
  return make;
}

}  // namespace

void UseCollectives(MakeNcclApi make) {
  absl::MutexLock lock(&mu);
  Registered() = std::move(make);
}

absl::StatusOr<std::shared_ptr<NcclApi>> CollectivesOfCurrentDevice() {
  MakeNcclApi make;
  {
    absl::MutexLock lock(&mu);
    make = Registered();
  }
  return make == nullptr ? NcclOfCurrentDevice() : make();
}

}  // namespace tandem::comm
