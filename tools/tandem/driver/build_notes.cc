#include "tools/tandem/driver/build_notes.h"

#include "absl/strings/str_cat.h"
#include "common/version/version.h"

namespace tandem::driver {

void NoteOtherBuilds(TrainerClient& trainer, const RolloutFleet* fleet,
                     const std::function<void(const std::string&)>& note) {
  if (!note) return;
  const auto compare = [&note](const std::string& who, const std::string& version) {
    const std::string other = version::DescribeOtherBuild(who, version);
    if (!other.empty()) note(other);
  };
  if (const auto info = trainer.GetModelInfo(); info.ok()) {
    compare("the trainer", info->build_version());
  }
  if (fleet == nullptr || fleet->replicas_may_change()) return;
  for (const RolloutFleet::Replica& replica : fleet->replicas()) {
    const auto info = RolloutFleet::GetServerInfo(replica);
    if (!info.ok()) continue;
    compare(absl::StrCat("rollout ", replica.id, " at ", replica.address), info->build_version());
  }
}

}  // namespace tandem::driver
