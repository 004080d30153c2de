#include "common/model/processor.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/model/kernels/instruction_sets.h"

namespace tandem::model {
namespace {

struct NamedProcessor {
  absl::Mutex mu;
  std::string name ABSL_GUARDED_BY(mu);  // empty: the CPU
};

NamedProcessor& Named() {
  static NamedProcessor* const named = new NamedProcessor;
  return *named;
}

}  // namespace

void SetProcessor(std::string processor) {
  absl::MutexLock lock(&Named().mu);
  Named().name = std::move(processor);
}

std::string CurrentProcessor() {
  absl::MutexLock lock(&Named().mu);
  return Named().name.empty() ? kernels::InstructionSets() : Named().name;
}

}  // namespace tandem::model
