// An engine over a small model, and requests that are waited for.
#ifndef TANDEM_TESTS_SERVICES_ROLLOUT_ENGINE_ENGINE_FIXTURE_H_
#define TANDEM_TESTS_SERVICES_ROLLOUT_ENGINE_ENGINE_FIXTURE_H_

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/io/model_folder.h"
#include "common/model/load_parameters.h"
#include "common/model/random_init.h"
#include "common/model/transformer.h"
#include "services/rollout/engine/engine.h"
#include "tests/support/staged_weights.h"
#include "tests/support/status_matchers.h"

namespace tandem::rollout {

// Generous: a test that reaches it has failed.
inline constexpr absl::Duration kPatience = absl::Seconds(60);

// A small random Qwen2-like model: GQA, biases, a head_dim of its own.
inline model::ModelSpec SmallSpec() {
  model::ModelSpec spec;
  spec.architecture = "Qwen2ForCausalLM";
  spec.vocab_size = 97;
  spec.hidden_size = 48;
  spec.max_position_embeddings = 512;
  spec.initializer_range = 0.2;
  model::LayerSpec layer;
  layer.feed_forward.intermediate_size = 80;
  layer.attention.num_heads = 6;
  layer.attention.num_kv_heads = 2;
  layer.attention.head_dim = 12;
  layer.attention.qkv_bias = true;
  spec.layers.assign(2, layer);
  return spec;
}

// The same with latent attention, in which 6 heads of keys and values take 6 * (20 + 16) elements of
// a token's cache, and a latent 24 + 8.
inline model::ModelSpec LatentSmallSpec() {
  model::ModelSpec spec = SmallSpec();
  spec.vocab_size = 700;
  spec.ropes.front() = {.rotary_dim = 8, .interleaved = true};
  for (model::LayerSpec& layer : spec.layers) {
    layer.attention.qkv_bias = false;
    layer.attention.num_kv_heads = layer.attention.num_heads;
    layer.attention.head_dim = 20;
    layer.attention.v_head_dim = 10;
    layer.attention.latent = model::LatentSpec{.q_rank = 20, .kv_rank = 24, .rope_dim = 8};
  }
  return spec;
}

// Linear attention in two layers of three, a gate on what the other one yields.
inline model::ModelSpec LinearSmallSpec() {
  model::ModelSpec spec = SmallSpec();
  spec.vocab_size = 700;
  spec.layers.push_back(spec.layers.back());
  const model::DeltaSpec delta{
      .num_key_heads = 2, .num_value_heads = 4, .key_dim = 12, .value_dim = 20, .kernel_size = 4};
  for (const int i : {0, 2}) spec.layers[i].attention.delta = delta;
  spec.layers[1].attention.output_gate = true;
  return spec;
}

// What became of one request.
class Outcome {
 public:
  GenerationCallbacks callbacks() {
    return {.on_chunk =
                [this](SampleChunk chunk) {
                  std::function<void()> then;
                  {
                    absl::MutexLock lock(&mu_);
                    samples_[chunk.index].push_back(std::move(chunk));
                    if (then_ != nullptr && CountLocked(0) >= then_count_) then.swap(then_);
                  }
                  if (then != nullptr) then();
                },
            .on_done =
                [this](absl::Status status) {
                  status_ = std::move(status);
                  done_.Notify();
                }};
  }

  // To be called once, in the engine's thread, as soon as sample 0 has so many tokens: what it asks
  // of the engine comes before the next step, so that the request is still running. Before
  // callbacks().
  void When(size_t count, std::function<void()> then) {
    absl::MutexLock lock(&mu_);
    then_count_ = count;
    then_ = std::move(then);
  }

  ::testing::AssertionResult Wait() {
    if (!done_.WaitForNotificationWithTimeout(kPatience)) {
      return ::testing::AssertionFailure() << "the request did not end";
    }
    return ::testing::AssertionSuccess();
  }
  // Waits until so many tokens of a sample are here.
  ::testing::AssertionResult WaitForTokens(int32_t index, size_t count) {
    absl::MutexLock lock(&mu_);
    const auto enough = [&] {
      mu_.AssertHeld();
      return done_.HasBeenNotified() || CountLocked(index) >= count;
    };
    if (!mu_.AwaitWithTimeout(absl::Condition(&enough), kPatience)) {
      return ::testing::AssertionFailure() << "too few tokens";
    }
    return ::testing::AssertionSuccess();
  }

  const absl::Status& status() const { return status_; }
  bool done() const { return done_.HasBeenNotified(); }

  std::vector<SampleChunk> chunks(int32_t index) {
    absl::MutexLock lock(&mu_);
    return samples_[index];
  }
  // A sample's chunks as one.
  SampleChunk sample(int32_t index = 0) {
    SampleChunk all;
    for (const SampleChunk& chunk : chunks(index)) {
      const int64_t offset = static_cast<int64_t>(all.token_ids.size());
      if (chunk.first) {
        all.num_prompt_tokens = chunk.num_prompt_tokens;
        all.num_cached_tokens = chunk.num_cached_tokens;
        all.seed = chunk.seed;
      }
      Append(chunk.token_ids, all.token_ids);
      Append(chunk.logprobs, all.logprobs);
      Append(chunk.processed_logprobs, all.processed_logprobs);
      for (VersionSpan span : chunk.version_spans) {
        all.version_spans.push_back({span.policy_version, span.begin + offset, span.end + offset});
      }
      all.text += chunk.text;
      all.finish_reason = chunk.finish_reason;
    }
    return all;
  }

 private:
  template <typename T>
  static void Append(const std::vector<T>& from, std::vector<T>& to) {
    to.insert(to.end(), from.begin(), from.end());
  }
  size_t CountLocked(int32_t index) {
    size_t count = 0;
    for (const SampleChunk& chunk : samples_[index]) count += chunk.token_ids.size();
    return count;
  }

  absl::Mutex mu_;
  std::map<int32_t, std::vector<SampleChunk>> samples_;
  size_t then_count_ = 0;
  std::function<void()> then_;
  absl::Status status_;
  absl::Notification done_;
};

class EngineTest : public ::testing::Test {
 protected:
  // An engine over random weights of `spec`, version 0 committed.
  void StartRandom(EngineOptions options, model::ModelSpec spec = SmallSpec()) {
    Start(std::move(options), std::move(spec));
    CommitRandom(/*version=*/0, /*seed=*/1);
  }

  // Over a folder's weights.
  void StartFolder(EngineOptions options, const std::string& path) {
    ASSERT_OK_AND_ASSIGN(io::ModelFolder folder, io::ModelFolder::Open(path));
    ASSERT_OK_AND_ASSIGN(model::ModelSpec spec,
                         model::ParseModelSpec(folder.config().json, folder.config().path));
    for (const int64_t id : folder.config().eos_token_ids) {
      options.eos_token_ids.push_back(static_cast<int32_t>(id));
    }
    Start(std::move(options), std::move(spec));
    ASSERT_OK_AND_ASSIGN(auto arena, engine_->weights().Staged());
    model::Arena plain(model_->table(), engine_->weights().dtype());
    ASSERT_OK(model::LoadParameters(folder, plain));
    arena->CopyFrom(plain);
    ASSERT_OK(engine_->Commit(0, absl::Now() + kPatience).status());
  }

  void Start(EngineOptions options, model::ModelSpec spec) {
    engine_.reset();
    model_ = std::make_unique<model::Transformer>(std::move(spec));
    ASSERT_OK_AND_ASSIGN(engine_, Engine::Create(options, *model_, tokenizer_.get()));
  }

  void CommitRandom(int64_t version, uint64_t seed) {
    ASSERT_OK_AND_ASSIGN(auto arena, engine_->weights().Staged());
    tandem::testing::StageRandom(model_->spec(), seed, *arena);
    ASSERT_OK(engine_->Commit(version, absl::Now() + kPatience).status());
  }

  // Submits; the outcome must outlive the engine's work on it.
  int64_t Submit(const GenerationRequest& request, Outcome& outcome) {
    const absl::StatusOr<int64_t> handle = engine_->Submit(request, outcome.callbacks());
    EXPECT_OK(handle.status());
    return handle.value_or(-1);
  }

  // Submits the requests while the engine is paused, so that it finds all of them in one step: what
  // shares a batch, and which sequences are preempted, then depends on the requests alone.
  void SubmitTogether(const std::vector<GenerationRequest>& requests,
                      std::vector<Outcome>& outcomes) {
    absl::Notification paused;
    engine_->Pause(PauseMode::kKeep, [&paused](int64_t) { paused.Notify(); });
    ASSERT_TRUE(paused.WaitForNotificationWithTimeout(kPatience));
    for (size_t i = 0; i < requests.size(); ++i) Submit(requests[i], outcomes[i]);
    engine_->Resume([] {});
  }

  // Submits a request, streaming, and pauses the engine once it has sampled `count` tokens: exactly
  // so many, for the pause takes effect before the next step.
  int64_t SubmitAndPauseAt(GenerationRequest request, size_t count, Outcome& outcome,
                           Release release = {}) {
    request.stream = true;
    absl::Notification paused;
    outcome.When(count, [this, release, &paused] {
      engine_->Pause(PauseMode::kKeep, release, [this, &paused](int64_t frozen) {
        frozen_ = frozen;
        paused.Notify();
      });
    });
    const int64_t handle = Submit(request, outcome);
    EXPECT_TRUE(paused.WaitForNotificationWithTimeout(kPatience));
    return handle;
  }

  SampleChunk Generate(const GenerationRequest& request) {
    Outcome outcome;
    Submit(request, outcome);
    EXPECT_TRUE(outcome.Wait());
    EXPECT_OK(outcome.status());
    return outcome.sample();
  }

  absl::StatusOr<ScoreResult> Score(const ScoreRequest& request) {
    absl::Notification done;
    absl::StatusOr<ScoreResult> result = absl::UnknownError("no answer");
    const auto handle = engine_->Score(request, [&](absl::StatusOr<ScoreResult> answer) {
      result = std::move(answer);
      done.Notify();
    });
    if (!handle.ok()) return handle.status();
    EXPECT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
    return result;
  }

  int64_t frozen_ = -1;  // requests that SubmitAndPauseAt() stopped
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::unique_ptr<model::Transformer> model_;
  std::unique_ptr<Engine> engine_;  // ends before what it uses
};

inline GenerationRequest Greedy(std::vector<int32_t> prompt, int64_t max_tokens) {
  GenerationRequest request;
  request.prompt_ids = std::move(prompt);
  request.filter.temperature = 0.0;
  request.max_tokens = max_tokens;
  return request;
}

// `count` ids that differ from those of another `salt`.
inline std::vector<int32_t> Prompt(int64_t count, int32_t salt = 0, int32_t vocab_size = 97) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>((i * 31 + salt * 7 + i * i) % vocab_size));
  }
  return ids;
}

}  // namespace tandem::rollout

#endif  // TANDEM_TESTS_SERVICES_ROLLOUT_ENGINE_ENGINE_FIXTURE_H_
