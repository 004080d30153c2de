#include "tools/tandem/driver/generation.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/driver_state.h"

namespace tandem::driver {
Generation::Generation(GenerationOptions options) : options_(std::move(options)) {
  if (options_.restored == nullptr) return;
  for (const v1::FinishedGroup& group : options_.restored->groups()) {
    restored_[group.place()] = &group;
    finished_[group.place()] = group;
  }
}

std::unique_ptr<Generation> Generation::Start(BatchCollector& collector,
                                              GenerationOptions options) {
  std::unique_ptr<Generation> out(new Generation(std::move(options)));
  out->batch_ = std::async(std::launch::async, [self = out.get(), &collector] {
    return collector.Collect(self->step(), [self](std::vector<Prompt> prompts,
                                                  const RolloutFleet::GenerateOptions& sampling) {
      return self->Sample(std::move(prompts), sampling);
    });
  });
  return out;
}

Generation::~Generation() {
  abandoned_ = true;
  if (batch_.valid()) batch_.wait();
}

absl::StatusOr<std::vector<Group>> Generation::Sample(std::vector<Prompt> prompts,
                                                      RolloutFleet::GenerateOptions sampling) {
  if (abandoned_) return absl::CancelledError("nobody waits for the step any more");
  int64_t place = 0;
  {
    absl::MutexLock lock(&mu_);
    place = num_prompts_;
    num_prompts_ += static_cast<int64_t>(prompts.size());
  }
  const int64_t known = options_.restored == nullptr ? 0 : options_.restored->num_prompts();
  std::vector<Group> groups(prompts.size());
  std::vector<Prompt> missing;
  std::vector<size_t> index_of;  // of the missing ones
  int64_t regenerated = 0;
  for (size_t i = 0; i < prompts.size(); ++i, ++place) {
    groups[i].prompt = std::move(prompts[i]);
    groups[i].prompt.place = place;
    const auto found = restored_.find(place);
    if (found == restored_.end()) {
      missing.push_back(groups[i].prompt);
      index_of.push_back(i);
      regenerated += place < known ? 1 : 0;
      continue;
    }
    const v1::FinishedGroup& group = *found->second;
    if (group.row() != groups[i].prompt.row) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "the checkpoint has samples of row %d as prompt %d of step %d, and the data has another "
          "row there; the files, their order, and data.train_batch_size must be the same",
          group.row(), place, step()));
    }
    Group restored = FromProto(group);
    restored.prompt = std::move(groups[i].prompt);
    groups[i] = std::move(restored);
  }
  {
    absl::MutexLock lock(&mu_);
    num_regenerated_ += regenerated;
  }
  if (missing.empty()) return groups;
  const std::vector<Prompt> asked = missing;
  sampling.on_group = [this, &asked](size_t index, const Group& group) {
    if (group.aborted()) return;
    absl::MutexLock lock(&mu_);
    finished_[*asked[index].place] = ToProto(asked[index], group);
  };
  ASSIGN_OR_RETURN(std::vector<Group> sampled, options_.sample(std::move(missing), sampling));
  for (size_t i = 0; i < sampled.size(); ++i) groups[index_of[i]] = std::move(sampled[i]);
  return groups;
}

int64_t Generation::num_regenerated() const {
  absl::MutexLock lock(&mu_);
  return num_regenerated_;
}

v1::Generation Generation::Finished() const {
  v1::Generation out;
  out.set_step(step());
  absl::MutexLock lock(&mu_);
  out.set_num_prompts(num_prompts_);
  for (const auto& [place, group] : finished_) *out.add_groups() = group;
  return out;
}

}  // namespace tandem::driver
