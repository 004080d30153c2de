// The model that the actors of a weight update exchange, at each version.
#ifndef TANDEM_TESTS_FAULT_ACTOR_MODEL_H_
#define TANDEM_TESTS_FAULT_ACTOR_MODEL_H_

#include <cstdint>

#include "tests/fakes/test_model.h"

namespace tandem::testing {

inline constexpr int kActorRanks = 2;               // of the trainer
inline constexpr int64_t kActorBucketBytes = 1024;  // some forty buckets
inline constexpr int kActorTensors = 6;

inline TestModel ActorModel(int64_t version) {
  TestModel model{{{{70, 50}}, {{30, 40}, {110}, {20, 30, 5}}, {{1}, {64, 30}}}};
  model.offset = static_cast<double>(version);
  return model;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAULT_ACTOR_MODEL_H_
