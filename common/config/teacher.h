// The section `teacher`: which models a policy is distilled from, and how.
#ifndef TANDEM_COMMON_CONFIG_TEACHER_H_
#define TANDEM_COMMON_CONFIG_TEACHER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/config/v1/run_config.pb.h"

namespace tandem::config {

// The largest teacher.top_k, and the most likeliest ids that a rollout returns for each position.
inline constexpr int64_t kMaxTeacherTopK = 1024;

// The most ids that a rollout returns for a sequence: they fit in a message.
inline constexpr int64_t kMaxTopIdsOfSequence = 1500000;

// One model that scores: exactly one of path and endpoint is set in a valid configuration.
struct TeacherSource {
  std::string key;          // "teacher", "teacher.teachers[1]"
  std::string data_source;  // of the rows that it scores; empty: of all rows
  std::string path;
  std::string endpoint;
};

// Returns the teachers of the configuration; empty without one.
std::vector<TeacherSource> TeachersOf(const v1::RunConfig& config);

// Whether the policy learns from a teacher where it samples itself: from the log-probs of its tokens,
// or with teacher.top_k from the likeliest tokens there.
bool DistilsOnPolicy(const v1::RunConfig& config);
// Whether advantages come from rewards: not if the policy learns from a teacher alone.
bool LearnsFromRewards(const v1::RunConfig& config);
// Whether a teacher's likeliest tokens are learnt: in supervised training, or, with teacher.mode loss,
// on-policy.
bool DistilsTopK(const v1::RunConfig& config);

}  // namespace tandem::config

#endif  // TANDEM_COMMON_CONFIG_TEACHER_H_
