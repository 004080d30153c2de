// A replica of several ranks gives the tokens of one rank, swaps weights on all ranks or none, and
// ends its requests when a rank is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>

#include "common/io/model_config.h"
#include "common/io/read_file.h"
#include "common/rpc/status_conversion.h"
#include "nlohmann/json.hpp"
#include "tandem/common/v1/error.pb.h"
#include "tests/services/rollout/ranks/replica.h"
#include "tests/support/shared_layers.h"
#include "tests/support/staged_weights.h"
#include "tests/support/unlike_layers.h"
#include "tests/support/vision_golden.h"

namespace tandem::rollout {
namespace {

using ::testing::HasSubstr;

model::ModelSpec Spec(int64_t heads, int64_t kv_heads, int64_t vocab, int64_t intermediate = 80) {
  model::ModelSpec spec = SmallSpec();
  spec.vocab_size = vocab;
  for (model::LayerSpec& layer : spec.layers) {
    layer.attention.num_heads = heads;
    layer.attention.num_kv_heads = kv_heads;
    layer.feed_forward.intermediate_size = intermediate;
  }
  return spec;
}

// The last layer sees 20 tokens.
model::ModelSpec Windowed(model::ModelSpec spec) {
  spec.layers.back().attention.window = 20;
  return spec;
}

// The first layer has linear attention, with 3 key heads.
model::ModelSpec Linear(model::ModelSpec spec) {
  spec.layers.front().attention.delta = model::DeltaSpec{
      .num_key_heads = 3, .num_value_heads = 6, .key_dim = 10, .value_dim = 7, .kernel_size = 4};
  spec.layers.back().attention.output_gate = true;
  return spec;
}

// Layers whose caches differ: the ranks have as many heads of some as of others, or not.
model::ModelSpec Unlike(model::ModelSpec spec) {
  tandem::testing::MakeLayersUnlike(spec);
  return spec;
}

// The last layers read the keys and values of others, and all have inputs.
model::ModelSpec Shared(model::ModelSpec spec) {
  tandem::testing::ShareLayers(spec);
  return spec;
}

struct Case {
  const char* name;
  model::ModelSpec spec;
  int size;
  bool shared_memory = true;
};

EngineOptions Options() {
  EngineOptions options;
  options.model_name = "random";
  options.kv_cache_bytes = 1 << 20;
  options.scheduler.max_num_batched_tokens = 24;  // prompts in chunks
  return options;
}

class TensorParallelTest : public ::testing::TestWithParam<Case> {};

// Requests of all kinds at once.
std::vector<GenerationRequest> Requests(int32_t vocab) {
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 6; ++i) {
    GenerationRequest request = Greedy(Prompt(5 + 13 * i, i, vocab), 24);
    request.ignore_eos = true;
    if (i % 2 == 1) {
      request.filter.temperature = 0.9;
      request.filter.top_k = 20;
      request.seed = 7 + i;
      request.n = 3;
    }
    requests.push_back(request);
  }
  return requests;
}

std::vector<SampleChunk> RunAll(Engine& engine, const std::vector<GenerationRequest>& requests) {
  std::vector<std::unique_ptr<Outcome>> outcomes;
  for (const GenerationRequest& request : requests) {
    outcomes.push_back(std::make_unique<Outcome>());
    EXPECT_OK(engine.Submit(request, outcomes.back()->callbacks()).status());
  }
  std::vector<SampleChunk> samples;
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(outcomes[i]->Wait());
    EXPECT_OK(outcomes[i]->status());
    for (int32_t n = 0; n < requests[i].n; ++n) samples.push_back(outcomes[i]->sample(n));
  }
  return samples;
}

std::vector<float> ScoreOf(Engine& engine, std::vector<int32_t> ids, int64_t first_scored = 0) {
  auto done = std::make_shared<std::promise<absl::StatusOr<ScoreResult>>>();
  EXPECT_OK(
      engine
          .Score({.token_ids = std::move(ids), .first_scored = first_scored},
                 [done](absl::StatusOr<ScoreResult> answer) { done->set_value(std::move(answer)); })
          .status());
  auto result = done->get_future().get();
  EXPECT_OK(result.status());
  return result->logprobs;
}

TEST_P(TensorParallelTest, SamplesAndScoresAsOneRank) {
  const Case& c = GetParam();
  const auto vocab = static_cast<int32_t>(c.spec.vocab_size);
  const std::vector<GenerationRequest> requests = Requests(vocab);
  model::Transformer whole(c.spec);
  ASSERT_OK_AND_ASSIGN(auto alone, Engine::Create(Options(), whole, nullptr));
  ASSERT_OK_AND_ASSIGN(auto arena, alone->weights().Staged());
  tandem::testing::StageRandom(c.spec, 5, *arena);
  ASSERT_OK(alone->Commit(0, absl::Now() + kPatience).status());
  const std::vector<SampleChunk> expected = RunAll(*alone, requests);
  const std::vector<float> expected_scores = ScoreOf(*alone, Prompt(40, 3, vocab));

  Replica replica(Options(), c.spec, {.size = c.size, .shared_memory = c.shared_memory});
  ASSERT_OK(replica.Commit(0, 5).status());
  const std::vector<SampleChunk> found = RunAll(replica.engine(), requests);
  const std::vector<float> scores = ScoreOf(replica.engine(), Prompt(40, 3, vocab));

  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].token_ids, expected[i].token_ids) << "sample " << i;
    for (size_t t = 0; t < found[i].logprobs.size(); ++t) {
      EXPECT_NEAR(found[i].logprobs[t], expected[i].logprobs[t], 1e-4) << "sample " << i;
    }
  }
  ASSERT_EQ(scores.size(), expected_scores.size());
  for (size_t t = 0; t < scores.size(); ++t) EXPECT_NEAR(scores[t], expected_scores[t], 1e-4);
  // The context comes from the cache, and every rank computes the same rows of the head.
  const std::vector<float> part = ScoreOf(replica.engine(), Prompt(40, 3, vocab), 30);
  ASSERT_EQ(part.size(), 10u);
  for (size_t t = 0; t < part.size(); ++t) EXPECT_NEAR(part[t], expected_scores[29 + t], 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Splits, TensorParallelTest,
                         ::testing::Values(Case{"EvenHeads2", Spec(6, 2, 96), 2},
                                           Case{"UnevenVocabulary2OverGloo", Spec(6, 2, 97), 2,
                                                false},
                                           Case{"UnevenHeads2", Spec(6, 3, 97, 81), 2},
                                           Case{"UnevenHeads3", Spec(10, 5, 101, 83), 3},
                                           Case{"KvHeadsInCopies4", Spec(8, 2, 97), 4},
                                           Case{"KvHeadsInUnevenCopies5", Spec(10, 2, 97, 79), 5},
                                           Case{"SlidingWindow2", Windowed(Spec(6, 2, 97)), 2},
                                           Case{"UnlikeLayers2", Unlike(Spec(6, 2, 97)), 2},
                                           Case{"UnlikeLayers3", Unlike(Spec(6, 1, 97)), 3},
                                           Case{"LinearAttention2", Linear(Spec(6, 2, 97)), 2},
                                           Case{"SharedLayers2", Shared(Spec(6, 2, 97)), 2},
                                           Case{"SharedLayers3", Shared(Spec(6, 3, 97)), 3},
                                           Case{"SharedLayersInCopies4", Shared(Spec(8, 2, 97)), 4},
                                           Case{"OneKvHead8", Spec(8, 1, 97), 8}),
                         [](const auto& info) { return info.param.name; });

TEST(ReplicaTest, PreemptionAndPrefixCacheWorkOverRanks) {
  EngineOptions options = Options();
  const model::ModelSpec spec = Spec(6, 2, 97);
  model::PagedKvCacheOptions block{.num_layers = spec.num_layers(),
                                   .num_blocks = 1,
                                   .block_size = 16,
                                   .num_kv_heads = 1,
                                   .head_dim = spec.layers.front().attention.head_dim};
  // Some twelve blocks: not all requests fit at once.
  options.kv_cache_bytes = 12 * model::PagedKvCache::BytesPerBlock(block);
  const std::vector<GenerationRequest> requests = Requests(97);
  Replica replica(options, spec, {});
  ASSERT_OK(replica.Commit(0, 5).status());

  const std::vector<SampleChunk> first = RunAll(replica.engine(), requests);
  const std::vector<SampleChunk> again = RunAll(replica.engine(), requests);

  EXPECT_GT(replica.engine().Info().scheduler.num_preemptions, 0);
  EXPECT_GT(replica.engine().Info().scheduler.num_cached_tokens, 0);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(again[i].token_ids, first[i].token_ids);
}

TEST(ReplicaTest, AllRanksSwapOrNone) {
  Replica replica(Options(), Spec(6, 3, 97), {.size = 3});
  ASSERT_OK(replica.Commit(0, 1).status());
  const auto requests = Requests(97);
  const auto before = RunAll(replica.engine(), requests);

  // The trainer's call has not reached rank 2: nobody swaps, and the old version serves.
  const auto failed = replica.Commit(1, 2, /*left_out=*/2, absl::Milliseconds(300));
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kDeadlineExceeded) << failed.status();
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(replica.pair(rank).live_version(), 0) << rank;
  EXPECT_EQ(RunAll(replica.engine(), requests)[0].token_ids, before[0].token_ids);

  ASSERT_OK(replica.Commit(1, 2).status());
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(replica.pair(rank).live_version(), 1) << rank;
  const auto after = RunAll(replica.engine(), requests);
  EXPECT_EQ(after[0].version_spans[0].policy_version, 1);
  EXPECT_NE(after[0].token_ids, before[0].token_ids);
}

TEST(ReplicaTest, SignsKeepIdleRanksTogether) {
  Replica replica(Options(), Spec(6, 2, 97), {.timeout = absl::Milliseconds(500)});
  ASSERT_OK(replica.Commit(0, 1).status());
  absl::SleepFor(absl::Milliseconds(1500));
  EXPECT_EQ(RunAll(replica.engine(), Requests(97)).size(), 12u);
}

class ReplicaImagesTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ReplicaImagesTest, SeveralRanksSeeTheImagesOfOne) {
  const std::string path = testing::VisionGolden(GetParam());
  ASSERT_OK_AND_ASSIGN(const io::ModelConfig config, io::ReadModelConfig(path));
  ASSERT_OK_AND_ASSIGN(const model::ModelSpec spec,
                       model::ParseModelSpec(config.json, config.path));
  EngineOptions options = Options();
  if (spec.vision->images_see_ahead) {
    // A step has room for an image beside a token of each sequence that decodes.
    options.scheduler.max_num_seqs = 8;
    options.scheduler.max_num_batched_tokens = 8 + spec.vision->rows_per_tile();
  }
  options.image_preparer = model::ImagePreparer::Load(path, *spec.vision);
  const nlohmann::json golden = nlohmann::json::parse(io::ReadFile(path + "/golden.json").value());
  const auto requests = [&](Engine& engine) {
    std::vector<GenerationRequest> all;
    for (const nlohmann::json& row : golden["rows"]) {
      GenerationRequest& request = all.emplace_back(Greedy(row["ids"], 16));
      request.ignore_eos = true;
      request.n = 2;
      std::vector<ImageFile> files;
      for (const std::string name : row["images"]) {
        files.push_back(
            std::make_shared<const std::string>(io::ReadFile(path + "/" + name).value()));
      }
      auto images = engine.ReadImages(files, request.prompt_ids);
      EXPECT_OK(images.status());
      request.images = *images;
    }
    return all;
  };
  Replica one(options, spec, {.size = 1});
  ASSERT_OK(one.Commit(0, 1).status());
  const auto expected = RunAll(one.engine(), requests(one.engine()));

  Replica two(options, spec, {});
  ASSERT_OK(two.Commit(0, 1).status());
  const auto found = RunAll(two.engine(), requests(two.engine()));

  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].token_ids, expected[i].token_ids) << i;
    for (size_t t = 0; t < found[i].logprobs.size(); ++t) {
      EXPECT_NEAR(found[i].logprobs[t], expected[i].logprobs[t], 1e-4) << i << " " << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ReplicaImagesTest,
                         ::testing::ValuesIn(testing::VisionGoldenCases()),
                         [](const auto& info) { return testing::VisionGoldenName(info.param); });

class LostRankTest : public ::testing::TestWithParam<bool> {};

TEST_P(LostRankTest, EndsEveryRequestWithACause) {
  Replica replica(Options(), Spec(6, 2, 97), {.shared_memory = GetParam()});
  ASSERT_OK(replica.Commit(0, 1).status());
  GenerationRequest request = Greedy(Prompt(10), 400);
  request.ignore_eos = true;
  request.stream = true;
  Outcome running;
  running.When(2, [&] { replica.group(1).Abort("the test ends it"); });

  ASSERT_OK(replica.engine().Submit(request, running.callbacks()).status());

  ASSERT_TRUE(running.Wait());
  EXPECT_EQ(running.status().code(), absl::StatusCode::kUnavailable) << running.status();
  EXPECT_THAT(std::string(running.status().message()), HasSubstr("cannot continue"));
  const auto info = rpc::GetDetail<common::v1::ErrorInfo>(running.status());
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason(), "RANK_LOST");
  Outcome later;
  EXPECT_EQ(replica.engine().Submit(request, later.callbacks()).status().code(),
            absl::StatusCode::kUnavailable);
  replica.Stage(0, 2);
  EXPECT_EQ(replica.engine().Commit(1, absl::Now() + kPatience).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_FALSE(replica.EndOf(1).ok());
}

INSTANTIATE_TEST_SUITE_P(Backends, LostRankTest, ::testing::Bool());

TEST(ReplicaTest, SleepsAndWakesOnEveryRank) {
  Replica replica(Options(), Spec(6, 2, 97), {});
  ASSERT_OK(replica.Commit(0, 1).status());
  const auto requests = Requests(97);
  const auto before = RunAll(replica.engine(), requests);
  absl::Notification asleep;
  replica.engine().Pause(PauseMode::kKeep, {.kv_cache = true, .weights = true},
                         [&](int64_t) { asleep.Notify(); });
  asleep.WaitForNotification();
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(replica.pair(rank).live_version(), -1) << rank;
  Outcome refused;
  EXPECT_EQ(replica.engine().Submit(requests[0], refused.callbacks()).status().code(),
            absl::StatusCode::kFailedPrecondition);

  ASSERT_OK(replica.Commit(1, 1).status());
  absl::Notification awake;
  replica.engine().Resume([&] { awake.Notify(); });
  awake.WaitForNotification();

  const auto after = RunAll(replica.engine(), requests);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(after[i].token_ids, before[i].token_ids);
}

}  // namespace
}  // namespace tandem::rollout
