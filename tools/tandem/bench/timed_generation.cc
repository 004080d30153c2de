#include "tools/tandem/bench/timed_generation.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/model/rotary_frequencies.h"
#include "common/status/status_macros.h"
#include "tools/tandem/commands/command.h"

namespace tandem::bench {

absl::StatusOr<std::vector<std::string>> RoomFor(const GenerationWork& work,
                                                 const model::ModelSpec& spec,
                                                 int64_t element_bytes,
                                                 absl::string_view length_flags) {
  const int64_t length = work.prompt_length() + work.new_tokens;
  const int64_t most = model::LongestGeneration(spec);
  if (length > most) {
    return commands::Misuse(absl::InvalidArgumentError(
        absl::StrCat("a prompt of ", work.prompt_length(), " tokens and ", work.new_tokens,
                     " new ones make ", length, "; expected at most the model's ",
                     most < spec.max_position_embeddings ? "original_" : "",
                     "max_position_embeddings ", most, "; lower ", length_flags)));
  }
  const int64_t samples = std::max<int64_t>(1, work.batch * work.n);
  const int64_t kv_bytes =
      model::ModelCacheElementsPerToken(spec, /*tensor_ranks=*/1, /*on_gpu=*/false) *
      element_bytes * (length + 16);
  return std::vector<std::string>{
      absl::StrCat("rollout.max_num_seqs=", samples),
      absl::StrCat("data.max_prompt_length=", work.prompt_length()),
      absl::StrCat("rollout.max_tokens=", work.new_tokens),
      absl::StrCat("rollout.max_model_len=", length),
      absl::StrCat("rollout.kv_cache_megabytes=",
                   std::max<int64_t>(64, 1 + samples * kv_bytes / 1000000))};
}

namespace {

absl::StatusOr<int64_t> BlocksInUse(const driver::RolloutFleet& fleet) {
  int64_t blocks = 0;
  for (const driver::RolloutFleet::Replica& replica : fleet.replicas()) {
    ASSIGN_OR_RETURN(const auto info, driver::RolloutFleet::GetServerInfo(replica));
    blocks += info.num_kv_blocks() - info.num_free_kv_blocks();
  }
  return blocks;
}

absl::StatusOr<std::vector<driver::Group>> GenerateGroups(
    driver::RolloutFleet& fleet, std::vector<driver::Prompt> prompts, const GenerationWork& work,
    std::function<absl::Status()> while_waiting) {
  rollout::v1::SamplingParams params;
  params.set_temperature(1);
  params.set_top_k(50);
  params.set_n(static_cast<uint32_t>(work.n));
  params.set_seed(1);
  params.set_ignore_eos(true);
  params.set_processed_logprobs(true);
  params.set_max_tokens(work.new_tokens);
  return fleet.Generate(
      std::move(prompts),
      {.sampling = params, .return_text = false, .while_waiting = std::move(while_waiting)});
}

}  // namespace

std::vector<driver::Prompt> DrawPrompts(TorchRandint& randint, const GenerationWork& work) {
  std::vector<driver::Prompt> prompts(static_cast<size_t>(work.batch));
  for (driver::Prompt& prompt : prompts) {
    prompt.token_ids = randint.Draw(work.prompt_tokens);
    if (work.pictures != nullptr) work.pictures->AddTo(prompt);
  }
  return prompts;
}

absl::StatusOr<TimedGeneration> TimeGeneration(driver::RolloutFleet& fleet, TorchRandint& randint,
                                               const GenerationWork& work) {
  return TimePrompts(fleet, DrawPrompts(randint, work), work);
}

absl::StatusOr<TimedGeneration> TimePrompts(driver::RolloutFleet& fleet,
                                            std::vector<driver::Prompt> prompts,
                                            const GenerationWork& work) {
  const absl::Time start = absl::Now();
  TimedGeneration timed;
  ASSIGN_OR_RETURN(timed.groups, GenerateGroups(fleet, std::move(prompts), work, nullptr));
  timed.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  for (const driver::Group& group : timed.groups) {
    for (const driver::Completion& completion : group.completions) {
      if (static_cast<int64_t>(completion.token_ids.size()) == work.new_tokens) continue;
      return absl::InternalError(absl::StrCat("expected ", work.new_tokens, " tokens, found ",
                                              completion.token_ids.size()));
    }
  }
  return timed;
}

absl::StatusOr<int64_t> CountKvBlocks(driver::RolloutFleet& fleet, TorchRandint& randint,
                                      const GenerationWork& work) {
  int64_t most = 0;
  const auto look = [&fleet, &most]() -> absl::Status {
    ASSIGN_OR_RETURN(const int64_t blocks, BlocksInUse(fleet));
    most = std::max(most, blocks);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(GenerateGroups(fleet, DrawPrompts(randint, work), work, look).status());
  return most;
}

}  // namespace tandem::bench
