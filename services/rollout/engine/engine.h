// Engine: continuous batching over one model on one machine.
//
//   ASSIGN_OR_RETURN(auto engine, Engine::Create(options, model, tokenizer));
//   ASSIGN_OR_RETURN(auto arena, engine->weights().Staged());
//   ... fill it ...
//   ASSIGN_OR_RETURN(CommitResult commit, engine->Commit(version, deadline));
//   RETURN_IF_ERROR(engine->Submit(request, {.on_chunk = ..., .on_done = ...}));
//
// One thread of its own takes steps: schedule, run, sample, collect. Everything that changes what
// it works on (requests, aborts, commits, pauses) is handed to that thread and takes effect between
// two steps.
#ifndef TANDEM_SERVICES_ROLLOUT_ENGINE_ENGINE_H_
#define TANDEM_SERVICES_ROLLOUT_ENGINE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/model/transformer.h"
#include "common/tokenizer/tokenizer.h"
#include "services/rollout/engine/arena_pair.h"
#include "services/rollout/engine/generation.h"
#include "services/rollout/engine/limits.h"
#include "services/rollout/engine/sample_state.h"
#include "services/rollout/kv_cache/block_manager.h"
#include "services/rollout/ranks/rank_leader.h"
#include "services/rollout/receive/weight_store.h"
#include "services/rollout/runner/model_runner.h"
#include "services/rollout/scheduler/scheduler.h"

namespace tandem::rollout {

// What becomes of requests in flight at a commit.
enum class InFlightPolicy { kAbort, kWait, kKeepRecompute, kKeepKv };

enum class PauseMode { kKeep, kAbort, kWait };

// Memory that a paused engine gives back to the system.
struct Release {
  bool kv_cache = false;
  bool weights = false;
  bool any() const { return kv_cache || weights; }
};

struct EngineOptions {
  std::string model_name;  // tells the caches of models apart
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;  // that computes; a CUDA device with its index
  ForwardOptions forward;
  std::vector<int> cpus;  // that the threads are pinned to, one each; empty: not pinned
  int64_t block_size = 16;
  int64_t kv_cache_bytes = int64_t{512} << 20;
  SchedulerOptions scheduler;
  int64_t max_model_len = 0;  // 0: the model's
  int64_t max_num_requests = 16384;
  InFlightPolicy in_flight = InFlightPolicy::kKeepRecompute;
  // End-of-sequence ids of config.json and generation_config.json.
  std::vector<int32_t> eos_token_ids;
  // The other tensor-parallel ranks of the replica, whose rank 0 this is; outlives the engine.
  // Null: there are none.
  RankLeader* ranks = nullptr;
  // Called on the engine thread after each commit.
  std::function<void(int64_t policy_version)> on_commit;
  // Called on the engine thread when the live weights have been given back.
  std::function<void()> on_weights_released;
  // Called on the engine thread, once, when the other ranks are lost, and why; every request has
  // been answered with it.
  std::function<void(const absl::Status&)> on_ranks_lost;
};

struct EngineInfo {
  int64_t policy_version = -1;
  int64_t incarnation = 0;    // of the trainer that it came from; 0: of none
  int64_t last_version = -1;  // also where its weights are released
  bool paused = false;
  bool draining = false;
  Release released;
  int64_t num_running_requests = 0;
  int64_t num_waiting_requests = 0;
  int64_t num_queued_tokens = 0;
  // When the oldest request came whose prompt is not computed yet; InfiniteFuture() without.
  absl::Time oldest_wait = absl::InfiniteFuture();
  int64_t num_kv_blocks = 0;
  int64_t num_free_kv_blocks = 0;
  int64_t num_generated_tokens = 0;
  SchedulerStats scheduler;
};

// Every method but the constructor's may be called from any thread, and none blocks on a step, but
// Commit() and Info() where they say so. Callbacks run on the engine thread.
class Engine {
 public:
  // Allocates the KV cache and starts the thread. `model` and `tokenizer` (may be null) outlive the
  // engine. INVALID_ARGUMENT where the options do not fit the model.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options,
                                                        const model::Transformer& model,
                                                        const tokenizer::Tokenizer* tokenizer);
  // Ends the thread; requests in flight are answered with CANCELLED.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Queues a request and answers a handle for Cancel(). At once: INVALID_ARGUMENT names the field;
  // FAILED_PRECONDITION while nothing is committed, or the weights are released; RESOURCE_EXHAUSTED
  // where the queue is full; UNAVAILABLE while draining, or where other ranks are lost.
  absl::StatusOr<int64_t> Submit(GenerationRequest request, GenerationCallbacks callbacks);

  // As Submit(); `done` is called once.
  absl::StatusOr<int64_t> Score(ScoreRequest request,
                                std::function<void(absl::StatusOr<ScoreResult>)> done);

  // Ends a request whose caller is gone: frees its blocks before the next step and calls on_done
  // with CANCELLED. Harmless for one that is done.
  void Cancel(int64_t handle);

  // Ends requests with what they have; `done` gets how many there were. An empty list with `all`
  // ends every request.
  void Abort(std::vector<std::string> request_ids, bool all, std::function<void(int64_t)> done);

  // `done` is called when the scheduler stands still, with the number of frozen requests.
  void Pause(PauseMode mode, std::function<void(int64_t)> done) {
    Pause(mode, {}, std::move(done));
  }
  // Then gives memory back. Frozen requests are computed again from their tokens. The KV cache is
  // taken again as it is used; weights are live again when a version is committed, which may come
  // while the engine is paused. Harmless to repeat, also with more.
  void Pause(PauseMode mode, Release release, std::function<void(int64_t)> done);
  // Where weights are released, requests wait on until some are committed.
  void Resume(std::function<void()> done);

  // The arenas; the staged one is filled by whoever receives weights.
  ArenaPair& weights() { return weights_; }

  // Makes the staged arena live between two steps and stamps `version`. By the stager; blocks until
  // then (with policy kWait, until requests in flight are done). DEADLINE_EXCEEDED: it is not
  // committed and will not be.
  absl::StatusOr<CommitResult> Commit(int64_t version, absl::Time deadline,
                                      int64_t incarnation = 0);

  // Has the other ranks of the replica load the folder's weights again as `version`, which this one
  // does too and then commits. `done` is called once they have begun.
  void ReloadRanks(int64_t version, std::function<void()> done);

  // Refuses new requests; those in flight may finish until `deadline` and are aborted then. A
  // paused engine aborts at once.
  void Drain(absl::Time deadline);

  // As of the last step. Does not block.
  EngineInfo Info() const;

  const model::Transformer& model() const { return model_; }
  const EngineOptions& options() const { return options_; }
  const RequestLimits& limits() const { return limits_; }

 private:
  Engine(const EngineOptions& options, const model::Transformer& model,
         const tokenizer::Tokenizer* tokenizer, std::unique_ptr<ModelRunner> runner);

  using Command = std::function<void()>;
  // Hands a command to the engine thread.
  void Post(Command command);
  // Counts the request among the accepted ones and posts it.
  absl::StatusOr<int64_t> Accept(std::unique_ptr<ActiveRequest> request);

  // All below: the engine thread.
  void Loop();
  // Waits for commands where there is nothing to compute. False when the engine ends.
  bool RunCommands();
  bool CanStep() const;
  void Step();
  void CollectScore(SampleState& sample, const std::vector<float>& logprobs,
                    const std::vector<std::vector<TokenLogprob>>& top_logprobs);
  // Gives a sample its token, hands over, and finishes it where it ends.
  void Collect(SampleState& sample, const SampledToken& token);
  // The samples of a group whose prompt is computed; each then has its own token.
  void ForkGroup(ActiveRequest& request);
  // With `hold`, a request that comes while older ones are waited for is put aside.
  void Enqueue(std::unique_ptr<ActiveRequest> request, bool hold = true);
  // Schedules a request of which an earlier call has sampled a part.
  void ResumeRequest(ActiveRequest& request);
  void FinishSample(SampleState& sample, FinishReason reason);
  // Removes the request from everywhere, then calls on_done or on_score.
  void FinishRequest(ActiveRequest& request, const absl::Status& status);
  // So many tokens fewer to come of it.
  void CountDown(ActiveRequest& request, int64_t num_tokens);
  void AbortRequest(ActiveRequest& request);
  void AbortAll();
  // The errors of ArenaPair::Load(); then the engine stands still until a version is committed.
  absl::Status FlipWeights(int64_t version, int64_t incarnation, CommitResult& result);
  // The hash that blocks of the cache begin with, for the version and memory there are now.
  void SetCacheRoot();
  void ReleaseMemory(const Release& release);

  // A version to be made live, and who waits for that.
  struct Swap;
  void BeginSwap(std::shared_ptr<Swap> swap);
  // Swaps where every rank can.
  void TrySwap();
  // When the other ranks must hear of this one next.
  absl::Time NextPeriodicTask() const;
  void RunPeriodicTasks();
  // Answers everything with what Explain() makes of the error; no step runs any more.
  void LoseRanks(const absl::Status& error);
  // Requests for generation that hold blocks, or tokens that were sampled.
  std::vector<ActiveRequest*> BegunRequests() const;
  void RestartScores();
  void RunWhenIdle();
  void UpdateInfo();

  const EngineOptions options_;
  const model::Transformer& model_;
  const tokenizer::Tokenizer* tokenizer_;
  RequestLimits limits_;
  ArenaPair weights_;

  // Owned by the engine thread.
  std::unique_ptr<ModelRunner> runner_;
  BlockManager blocks_;
  Scheduler scheduler_;
  std::map<int64_t, std::unique_ptr<ActiveRequest>> requests_;  // by arrival
  std::vector<std::unique_ptr<ActiveRequest>> finished_;        // kept until the step is over
  // Of the step; kept, so that the next allocates nothing.
  struct StepLists {
    std::vector<RunItem> items;
    std::vector<SampleRow> rows;
    std::vector<SampleState*> sampled;  // one for each row
    std::vector<SampledToken> tokens;   // likewise
  };
  StepLists lists_;
  std::vector<std::unique_ptr<ActiveRequest>> held_;  // came while older ones are waited for
  std::vector<Command> when_idle_;                    // waits for `requests_` to be empty
  const model::ParameterProvider* live_ = nullptr;
  int64_t version_ = -1;
  int64_t incarnation_ = 0;  // of the trainer that version_ came from
  int num_repairs_ = 0;      // of version_
  int num_releases_ = 0;     // of the cache
  Release released_;
  std::shared_ptr<Swap> swap_;  // waits for the other ranks
  absl::Time next_try_ = absl::InfinitePast();
  absl::Status lost_;  // why the other ranks are
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
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);      // of new requests, as lost_
  EngineInfo info_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_ENGINE_ENGINE_H_
