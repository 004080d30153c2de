#include "services/trainer/data/preference_pairs.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/status_conversion.h"

namespace tandem::trainer {

absl::StatusOr<std::vector<PreferencePair>> FindPreferencePairs(const TrainingBatch& batch) {
  std::vector<std::vector<int64_t>> members(batch.num_groups);
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    members[batch.sequences[i].group].push_back(static_cast<int64_t>(i));
  }
  std::vector<PreferencePair> pairs;
  for (const std::vector<int64_t>& group : members) {
    const std::string place = absl::StrCat("samples[", group.front(), "]");
    if (group.size() != 2) {
      return rpc::InvalidField(
          absl::StrCat(place, ".group_id"),
          absl::StrCat("expected a group of two samples, the chosen and the rejected; found ",
                       group.size()));
    }
    PreferencePair pair{group[0], group[1]};
    const double first = batch.sequences[pair.chosen].reward;
    const double second = batch.sequences[pair.rejected].reward;
    if (!std::isfinite(first) || !std::isfinite(second) || first == second) {
      return rpc::InvalidField(
          absl::StrCat(place, ".reward"),
          absl::StrCat(
              "expected two different finite rewards, the larger one for the chosen sample; found ",
              first, " and ", second));
    }
    if (first < second) std::swap(pair.chosen, pair.rejected);
    for (const int64_t i : group) {
      if (!batch.sequences[i].trained.empty()) continue;
      return rpc::InvalidField(absl::StrCat("samples[", i, "].segments"),
                               "expected a token to train on: sampled, not masked out, and not the "
                               "first of its sample; found none");
    }
    pairs.push_back(pair);
  }
  return pairs;
}

}  // namespace tandem::trainer
