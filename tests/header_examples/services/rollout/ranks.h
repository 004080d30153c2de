// What the usage examples in services/rollout/ranks leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_RANKS_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_RANKS_H_

#include <vector>

namespace tandem::rollout::rank_follower_example {
extern model::PagedKvCacheOptions options;
extern model::Transformer model;
extern RankGroup* ranks;
extern RankFollower* follower;
extern int64_t version;
extern absl::Time deadline;
}  // namespace tandem::rollout::rank_follower_example

namespace tandem::rollout::rank_group_example {
extern RankGroupOptions options;
extern model::ModelSpec spec;
extern v1::RankOrder order;
extern absl::Status can_i;
}  // namespace tandem::rollout::rank_group_example

namespace tandem::rollout::rank_leader_example {
extern RankLeader& leader;
extern std::vector<RunItem> items;
extern CacheCopies copies;
extern model::PagedKvCache& cache;
extern int64_t version;
inline constexpr header_examples::AnyFunction Swap;
}  // namespace tandem::rollout::rank_leader_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_RANKS_H_
