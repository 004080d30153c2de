#include "tools/tandem/driver/equal_rewards.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/text/printable.h"
#include "tools/tandem/driver/group_filter.h"

namespace tandem::driver {
namespace {

constexpr size_t kShownBytes = 80;

bool AllEqual(const std::vector<Group>& groups) {
  const double first = groups.front().completions.front().reward;
  return std::all_of(groups.begin(), groups.end(), [first](const Group& group) {
    return std::all_of(group.completions.begin(), group.completions.end(),
                       [first](const Completion& c) { return c.reward == first; });
  });
}

std::string Shown(const std::string& text) {
  const std::string line = text::PrintableLine(text.substr(0, kShownBytes));
  return absl::StrCat("\"", line, text.size() > kShownBytes ? "..." : "", "\"");
}

}  // namespace

void EqualRewards::OnStep(int64_t step, const std::vector<Group>& groups, Metrics& metrics) {
  int64_t num_compared = 0, num_equal = 0;
  for (const Group& group : groups) {
    if (group.completions.size() < 2) continue;
    ++num_compared;
    if (!Differs(group, config::v1::FILTER_METRIC_SEQ_REWARD, estimator_)) ++num_equal;
  }
  metrics["rollout/equal_reward_groups"] = static_cast<double>(num_equal);
  if (groups.empty() || groups.front().completions.empty()) return;
  const bool has_signal = num_compared > 0 ? num_equal < num_compared : !AllEqual(groups);
  if (has_signal) {
    in_a_row_ = 0;
    next_note_ = kFirstNote;
    return;
  }
  if (++in_a_row_ < next_note_) return;
  next_note_ *= 2;
  Note(step, groups);
}

void EqualRewards::Note(int64_t step, const std::vector<Group>& groups) const {
  const Group& group = groups.front();
  const Completion& completion = group.completions.front();
  const std::string which = AllEqual(groups)
                                ? absl::StrCat("every reward is ", completion.reward)
                                : std::string("the rewards of each prompt's completions are equal");
  note_(absl::StrCat("warning: steps ", step - in_a_row_ + 1, " to ", step, ": ", which,
                     " (reward ", reward_,
                     "), so no completion counts as better than another. For example, the answer ",
                     Shown(group.prompt.answer), " and the completion ", Shown(completion.text),
                     " gave ", completion.reward,
                     "; if the reward should tell them apart, check data.answer_key and the reward "
                     "(`tandem reward`), otherwise the prompts are too easy or too hard"));
}

}  // namespace tandem::driver
