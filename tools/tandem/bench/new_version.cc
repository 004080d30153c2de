#include "tools/tandem/bench/new_version.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/tandem/bench/bench.h"

namespace tandem::bench {

absl::Status MakeNewVersion(driver::TrainerClient& trainer, int64_t step, int64_t vocab_size) {
  TorchRandint randint(static_cast<uint64_t>(step), vocab_size);
  common::v1::Sample sample;
  sample.set_sample_id(absl::StrCat(step));
  sample.set_group_id(absl::StrCat(step));
  sample.set_temperature(1);
  for (const auto kind : {common::v1::SEGMENT_KIND_PROMPT, common::v1::SEGMENT_KIND_SAMPLED}) {
    const std::vector<uint32_t> ids = randint.Draw(8);
    common::v1::Segment* segment = sample.add_segments();
    segment->set_kind(kind);
    segment->mutable_token_ids()->Add(ids.begin(), ids.end());
  }
  return trainer.TrainStep(step, trainer::v1::OBJECTIVE_SUPERVISED, {sample}).status();
}

}  // namespace tandem::bench
