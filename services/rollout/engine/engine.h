// Engine: continuous batching over one model on one machine.
//
//   ASSIGN_OR_RETURN(auto engine, Engine::Create(options, model, tokenizer));
//   ASSIGN_OR_RETURN(auto arena, engine->weights().Staged());
//   ...   // fills it
//   ASSIGN_OR_RETURN(CommitResult commit, engine->Commit(version, deadline));
//   ASSIGN_OR_RETURN(int64_t handle, engine->Submit(request, {.on_chunk = ..., .on_done = ...}));
//
// The engine thread runs steps: schedule, run, sample, collect. All state changes (requests,
// aborts, commits, pauses) are queued to that thread and take effect between two steps.
#ifndef TANDEM_SERVICES_ROLLOUT_ENGINE_ENGINE_H_
#define TANDEM_SERVICES_ROLLOUT_ENGINE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/images/chat/placeholders.h"
#include "common/model/images/pixel_cache.h"
#include "common/model/transformer.h"
#include "common/tokenizer/tokenizer.h"
#include "services/rollout/engine/generation.h"
#include "services/rollout/engine/limits.h"
#include "services/rollout/engine/sample_routing.h"
#include "services/rollout/engine/sample_state.h"
#include "services/rollout/images/image_encoder.h"
#include "services/rollout/images/request_images.h"
#include "services/rollout/kv_cache/block_manager.h"
#include "services/rollout/ranks/rank_leader.h"
#include "services/rollout/receive/arena_pair.h"
#include "services/rollout/receive/weight_store.h"
#include "services/rollout/runner/model_runner.h"
#include "services/rollout/scheduler/scheduler.h"

namespace tandem::rollout {

// Treatment of requests in flight at a commit.
enum class InFlightPolicy { kAbort, kWait, kKeepRecompute, kKeepKv };

enum class PauseMode { kKeep, kAbort, kWait };

// Memory that a paused engine returns to the system.
struct Release {
  bool kv_cache = false;
  bool weights = false;
  bool any() const { return kv_cache || weights; }
};

struct EngineOptions {
  std::string model_name;  // tells the caches of models apart
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;            // of the forward pass; a CUDA device with its index
  std::string device_description = "cpu";  // for logs and GetServerInfo
  at::Device staged_on = at::kCPU;         // where weights are received: that device or the CPU
  ForwardOptions forward;
  std::vector<int> cpus;  // one per thread to pin it to; empty: not pinned
  int64_t block_size = 16;
  int64_t kv_cache_bytes = int64_t{512} << 20;
  SchedulerOptions scheduler;
  int64_t max_model_len = 0;  // 0: the model's
  int64_t max_num_requests = 16384;
  // Of the model's folder; an error says why the model takes no images.
  absl::StatusOr<model::ImagePreparer> image_preparer =
      absl::InvalidArgumentError("the model has no vision tower: it takes text alone");
  ImageEncoderOptions image_encoder;
  int64_t max_image_bytes = int64_t{1} << 30;  // of the files that requests hold
  InFlightPolicy in_flight = InFlightPolicy::kKeepRecompute;
  // End-of-sequence ids of config.json and generation_config.json.
  std::vector<int32_t> eos_token_ids;
  // The other tensor-parallel ranks of the replica; this engine is rank 0. Must outlive the engine.
  // Null: there are none.
  RankLeader* ranks = nullptr;
  // Called on the engine thread after each commit.
  std::function<void(int64_t policy_version)> on_commit;
  // Called on the engine thread when the live weights have been released.
  std::function<void()> on_weights_released;
  // Called once on the engine thread, with the cause, when the other ranks are lost and every
  // request has failed with that status.
  std::function<void(const absl::Status&)> on_ranks_lost;
};

struct EngineInfo {
  int64_t policy_version = -1;
  int64_t incarnation = 0;    // of the trainer that published it; 0: none
  int64_t last_version = -1;  // kept while its weights are released
  bool paused = false;
  bool draining = false;
  Release released;
  int64_t num_running_requests = 0;
  int64_t num_waiting_requests = 0;
  int64_t num_queued_tokens = 0;
  // Arrival of the oldest request whose prompt is not computed yet; InfiniteFuture() if none.
  absl::Time oldest_wait = absl::InfiniteFuture();
  int64_t num_kv_blocks = 0;
  int64_t num_free_kv_blocks = 0;
  int64_t num_generated_tokens = 0;
  // Nullopt if the model takes no images.
  struct Images {
    ImageEncoderStats encoder;
    model::PixelCacheStats pixels;
  };
  std::optional<Images> images;
  SchedulerStats scheduler;
};

// Thread-safe. Only Commit() blocks; the destructor joins the engine thread. Callbacks run on the
// engine thread.
class Engine {
 public:
  // Allocates the KV cache and starts the thread. `model` and `tokenizer` (may be null) must
  // outlive the engine. INVALID_ARGUMENT if the options do not fit the model.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options,
                                                        const model::Transformer& model,
                                                        const tokenizer::Tokenizer* tokenizer);
  // Stops the thread; requests in flight fail with CANCELLED.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Reads the images of a prompt, for a request; null without images. Decodes on the caller's thread,
  // which may take a second. INVALID_ARGUMENT names "images" or the token, as ReadRequestImages().
  absl::StatusOr<std::shared_ptr<const RequestImages>> ReadImages(
      std::vector<ImageFile> files, absl::Span<const int32_t> prompt_ids);

  // The placeholder of the model's images; nullopt if it takes none.
  std::optional<int32_t> image_token_id() const;
  // What a chat template writes for an image in place of the placeholder; empty: it writes that.
  std::string written_for_image() const;
  // The tokens that stand for an image in a prompt of text. FAILED_PRECONDITION if the model takes no
  // images, or its tokenizer lacks one of them.
  absl::StatusOr<images::PlaceholderIds> ImagePlaceholders() const;
  // The placeholders of an image that ReadImages() will get. Decodes it, on the caller's thread.
  // INVALID_ARGUMENT begins with `place`.
  absl::StatusOr<images::PlaceholderGrid> ImagePlaceholderGrid(const ImageFile& file,
                                                               const std::string& place,
                                                               images::ImageForm form);

  // Queues a request and returns a handle for Cancel(). Immediate errors: INVALID_ARGUMENT names
  // the field; FAILED_PRECONDITION while nothing is committed, or the weights are released;
  // RESOURCE_EXHAUSTED if the queue is full; UNAVAILABLE while draining, or if other ranks are
  // lost.
  absl::StatusOr<int64_t> Submit(GenerationRequest request, GenerationCallbacks callbacks);

  // Like Submit(); calls `done` once.
  absl::StatusOr<int64_t> Score(ScoreRequest request,
                                std::function<void(absl::StatusOr<ScoreResult>)> done);

  // Ends a request whose caller is gone: frees its blocks before the next step and calls on_done
  // with CANCELLED. No effect on a finished request.
  void Cancel(int64_t handle);

  // Ends requests, which return their tokens so far; `done` gets the number of ended requests. An
  // empty list with `all` ends every request.
  void Abort(std::vector<std::string> request_ids, bool all, std::function<void(int64_t)> done);

  // Calls `done` with the number of frozen requests once the scheduler has stopped.
  void Pause(PauseMode mode, std::function<void(int64_t)> done) {
    Pause(mode, {}, std::move(done));
  }
  // The same, then releases memory. Frozen requests are recomputed from their tokens. The KV cache
  // is allocated again on use; weights return with the next commit, which may come while the engine
  // is paused. May be repeated, also to release more.
  void Pause(PauseMode mode, Release release, std::function<void(int64_t)> done);
  // If weights are released, requests wait for the next commit.
  void Resume(std::function<void()> done);

  // The live arena, and the staged one that the receiver of an update fills.
  ArenaPair& weights() { return weights_; }

  // Makes the staged arena live as `version`, between two steps. Called by the stager; blocks until
  // then (with policy kWait, until requests in flight are done). DEADLINE_EXCEEDED: the version is
  // not committed and never will be.
  absl::StatusOr<CommitResult> Commit(int64_t version, absl::Time deadline,
                                      int64_t incarnation = 0);

  // Makes the replica's other ranks reload the folder's weights as `version`; the caller reloads
  // and commits this rank's. Calls `done` once they have started.
  void ReloadRanks(int64_t version, std::function<void()> done);

  // Rejects new requests. Those in flight may finish until `deadline`, then are aborted. A paused
  // engine aborts them at once.
  void Drain(absl::Time deadline);

  // State after the last step. Does not block.
  EngineInfo Info() const;

  const model::Transformer& model() const { return model_; }
  const EngineOptions& options() const { return options_; }
  const RequestLimits& limits() const { return limits_; }

 private:
  Engine(const EngineOptions& options, const model::Transformer& model,
         const tokenizer::Tokenizer* tokenizer, std::unique_ptr<ModelRunner> runner);

  using Command = std::function<void()>;
  // Queues a command for the engine thread.
  void Post(Command command);
  // INVALID_ARGUMENT for placeholders without images.
  absl::Status CheckPlaceholders(const GenerationRequest& spec) const;
  // Counts the request as accepted and queues it.
  absl::StatusOr<int64_t> Accept(std::unique_ptr<ActiveRequest> request);

  // Engine thread only, from here on.
  void Loop();
  // Waits for commands if there is nothing to compute. Returns false when the engine stops.
  bool RunCommands();
  bool CanStep() const;
  void Step();
  // Encodes images that the last plan lacked. False if there was nothing to do.
  bool EncodeImages();
  void CollectClass(SampleState& sample, std::vector<float> logits);
  // `first`: the token of the first log-prob.
  void CollectScore(SampleState& sample, int64_t first, const std::vector<float>& logprobs,
                    const std::vector<std::vector<TokenLogprob>>& top_logprobs);
  // Adds a token to a sample, hands the chunk over, and finishes the sample if it ends.
  void Collect(SampleState& sample, const SampledToken& token);
  // Forks a group's samples once its prompt is computed; each then has its own token.
  void ForkGroup(ActiveRequest& request);
  // With `hold`, sets the request aside while older ones must finish first.
  void Enqueue(std::unique_ptr<ActiveRequest> request, bool hold = true);
  // Schedules a request that an earlier call has partly sampled.
  void ResumeRequest(ActiveRequest& request);
  void FinishSample(SampleState& sample, FinishReason reason);
  // Removes the request from everywhere, then calls on_done or on_score.
  void FinishRequest(ActiveRequest& request, const absl::Status& status);
  // Subtracts `num_tokens` from the tokens still expected of the request.
  void CountDown(ActiveRequest& request, int64_t num_tokens);
  void AbortRequest(ActiveRequest& request);
  void AbortAll();
  // Errors: those of ArenaPair::Load(); the engine then stalls until the next commit.
  absl::Status FlipWeights(int64_t version, int64_t incarnation, CommitResult& result);
  // Sets the cache's root hash for the current version and memory.
  void SetCacheRoot();
  void ReleaseMemory(const Release& release);

  // A pending commit and its waiting caller.
  struct Swap;
  void BeginSwap(std::shared_ptr<Swap> swap);
  // Swaps if every rank can.
  void TrySwap();
  // Time of the next heartbeat or other periodic task.
  absl::Time NextPeriodicTask() const;
  void RunPeriodicTasks();
  // Fails all requests with the status from Explain(); no step runs any more.
  void LoseRanks(const absl::Status& error);
  // Generation requests that hold blocks or sampled tokens.
  std::vector<ActiveRequest*> BegunRequests() const;
  void RestartScores();
  void RunWhenIdle();
  void UpdateInfo();

  const EngineOptions options_;
  const model::Transformer& model_;
  const tokenizer::Tokenizer* tokenizer_;
  RequestLimits limits_;
  const int64_t routed_values_per_token_;  // model::RoutedLayout; 0 without
  ArenaPair weights_;
  std::optional<model::PixelCache> pixels_;     // if the model takes images
  const std::vector<int32_t> placeholder_ids_;  // which are never sampled; empty without a tower
  const std::vector<int> tower_;                // its parameters

  // Owned by the engine thread.
  std::unique_ptr<ModelRunner> runner_;
  BlockManager blocks_;
  Scheduler scheduler_;
  SampleRouting routing_;
  std::optional<ImageEncoder> encoder_;                         // if the model takes images
  std::map<int64_t, std::unique_ptr<ActiveRequest>> requests_;  // by arrival
  std::vector<std::unique_ptr<ActiveRequest>> finished_;        // kept until the step is over
  // Lists of the current step; reused, so later steps allocate nothing.
  struct StepLists {
    std::vector<RunItem> items;
    std::vector<SampleRow> rows;
    std::vector<SampleState*> sampled;  // one per row
    std::vector<SampledToken> tokens;   // one per row
  };
  StepLists lists_;
  // (from, to) for each fork since the last step; the next step copies them first. If a fork has ended
  // by then, another sequence may have its state: that one starts at its first token, which resets it.
  std::vector<std::pair<int32_t, int32_t>> state_copies_;
  std::vector<std::unique_ptr<ActiveRequest>> held_;  // arrived while older ones must finish first
  std::vector<Command> when_idle_;                    // run once `requests_` is empty
  const model::ParameterProvider* live_ = nullptr;
  int64_t version_ = -1;
  int64_t incarnation_ = 0;  // of the trainer that version_ came from
  int num_repairs_ = 0;      // of version_
  int num_releases_ = 0;     // of the cache
  Release released_;
  std::shared_ptr<Swap> swap_;  // waits for the other ranks
  absl::Time next_try_ = absl::InfinitePast();
  absl::Status lost_;  // why the other ranks are lost
  int64_t num_queued_tokens_ = 0;
  int64_t num_generated_tokens_ = 0;
  bool paused_ = false;
  absl::Time drain_deadline_ = absl::InfiniteFuture();

  mutable absl::Mutex mu_;
  std::vector<Command> inbox_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  int64_t next_arrival_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t num_requests_ ABSL_GUARDED_BY(mu_) = 0;  // accepted and not done
  int64_t image_bytes_ ABSL_GUARDED_BY(mu_) = 0;   // of these requests' files
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);      // returned to new requests; see lost_
  EngineInfo info_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_ENGINE_ENGINE_H_
