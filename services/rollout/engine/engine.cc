#include "services/rollout/engine/engine.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/images/chat/find_placeholders.h"
#include "common/images/image_digest.h"
#include "common/model/image_forms.h"
#include "common/model/reward_model_spec.h"
#include "common/rpc/status_conversion.h"
#include "common/security/secret.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "services/rollout/engine/cache_size.h"

namespace tandem::rollout {
namespace {

// Enough rows for a GPU's products to be as fast as they get, of few enough bytes: 4 images of
// 1,792 x 1,792 pixels. In bfloat16 the widest tensors of a tower of width 1,280 then take 112 MB.
constexpr int64_t kPatchesPerPassOnGpu = 16384;

uint64_t DrawSeed() {
  uint64_t seed;
  const std::string drawn = security::DrawSecret(sizeof(seed));
  std::memcpy(&seed, drawn.data(), sizeof(seed));
  return seed;
}

std::vector<int32_t> StopIds(const GenerationRequest& request, const std::vector<int32_t>& eos) {
  std::vector<int32_t> ids = request.stop_token_ids;
  if (!request.ignore_eos) ids.insert(ids.end(), eos.begin(), eos.end());
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<int32_t> PlaceholdersOf(const model::ModelSpec& spec) {
  if (!spec.vision.has_value()) return {};
  const auto image = static_cast<int32_t>(spec.vision->image_token_id);
  if (spec.vision->video_token_id < 0) return {image};
  return {image, static_cast<int32_t>(spec.vision->video_token_id)};
}

std::vector<int> TowerOf(const model::ParameterTable& table) {
  std::vector<int> tower;
  for (size_t i = 0; i < table.parameters().size(); ++i) {
    if (table.parameters()[i].group == "vision") tower.push_back(static_cast<int>(i));
  }
  return tower;
}

SchedulerOptions WithModel(SchedulerOptions options, const model::ModelSpec& spec,
                           const model::PagedKvCache& cache) {
  options.num_states = cache.states().count();
  options.whole_images = spec.vision.has_value() && spec.vision->images_see_ahead;
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& requested,
                                                       const model::Transformer& model,
                                                       const tokenizer::Tokenizer* tokenizer) {
  EngineOptions options = requested;
  ASSIGN_OR_RETURN(const CacheSize size, SizeCache(options, model));
  options.max_model_len = size.max_model_len;
  ASSIGN_OR_RETURN(auto runner, ModelRunner::Create(model, size.cache, options.forward));
  if (!size.cache.states.empty()) {
    telemetry::LogInfo(
        "linear attention: each running sequence has a state, and the prefix cache is off",
        {{"sequences", size.cache.states.count},
         {"bytes_of_each", model::RecurrentStates::BytesPerSequence(size.cache.states)}});
  }
  std::unique_ptr<Engine> engine(new Engine(options, model, tokenizer, std::move(runner)));
  engine->thread_ = std::thread([raw = engine.get()] { raw->Loop(); });
  return engine;
}

Engine::Engine(const EngineOptions& options, const model::Transformer& model,
               const tokenizer::Tokenizer* tokenizer, std::unique_ptr<ModelRunner> runner)
    : options_(options),
      model_(model),
      tokenizer_(tokenizer),
      limits_{.vocab_size = model.spec().vocab_size,
              .max_model_len = options.max_model_len,
              .has_tokenizer = tokenizer != nullptr,
              .classifies = model.spec().value_head,
              .routed_layout = model::RoutedLayout::Of(model.spec())},
      routed_values_per_token_(
          limits_.routed_layout.ok() ? limits_.routed_layout->values_per_token() : 0),
      weights_(model.table(), options.dtype, options.device, options.staged_on),
      placeholder_ids_(PlaceholdersOf(model.spec())),
      tower_(TowerOf(model.table())),
      runner_(std::move(runner)),
      blocks_(runner_->cache().options().num_blocks, options.block_size,
              runner_->cache().groups().windows),
      scheduler_(WithModel(options.scheduler, model.spec(), runner_->cache()), blocks_),
      routing_(blocks_, routed_values_per_token_) {
  scheduler_.SetNumUsable([this](Sequence& sequence) {
    return routing_.NumUsable(static_cast<SampleState&>(sequence));
  });
  if (model.spec().vision.has_value() && options.image_preparer.ok()) {
    pixels_.emplace(*options.image_preparer);
    ImageEncoderOptions of_encoder = options.image_encoder;
    if (of_encoder.max_patches_per_step == 0) {
      of_encoder.max_patches_per_step = options.scheduler.max_num_batched_tokens;
    }
    if (!options.device.is_cpu()) {
      if (of_encoder.max_patches_per_pass == 0) {
        of_encoder.max_patches_per_pass = kPatchesPerPassOnGpu;
      }
      of_encoder.await_device = [this] { runner_->Synchronize(); };
    }
    encoder_.emplace(model, *pixels_, of_encoder);
    scheduler_.SetNumReady([this](const Sequence& sequence) {
      const auto& sample = static_cast<const SampleState&>(sequence);
      return encoder_->NumReady(sample, *sample.request->spec.images);
    });
  }
  UpdateInfo();
}

Engine::~Engine() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void Engine::Post(Command command) {
  absl::MutexLock lock(&mu_);
  inbox_.push_back(std::move(command));
}

absl::StatusOr<int64_t> Engine::Accept(std::unique_ptr<ActiveRequest> request) {
  if (weights_.live_version() < 0) {
    absl::MutexLock lock(&mu_);
    if (info_.released.weights) {
      return rpc::WithReason(absl::FailedPreconditionError(
                                 "the rollout sleeps and its weights are released; publish "
                                 "weights, or resume a rollout that has its own model folder"),
                             "WEIGHTS_RELEASED");
    }
    return rpc::WithReason(
        absl::FailedPreconditionError(
            "the rollout is STALE: no weights are committed yet; publish them first"),
        "STALE");
  }
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(refusal_);
  if (draining_ || stopping_) return absl::UnavailableError("the rollout is draining");
  if (num_requests_ >= options_.max_num_requests) {
    return rpc::WithReason(
        absl::ResourceExhaustedError(
            absl::StrCat("the queue holds ", num_requests_, " requests, its limit; retry later")),
        "QUEUE_FULL", {{"retry_after_seconds", "1"}});
  }
  const int64_t image_bytes = request->image_bytes();
  // One request of any size passes: its message was within the server's limit.
  if (image_bytes > 0 && image_bytes_ > 0 &&
      image_bytes_ + image_bytes > options_.max_image_bytes) {
    return rpc::WithReason(absl::ResourceExhaustedError(absl::StrCat(
                               "the queue holds ", image_bytes_, " bytes of images, of at most ",
                               options_.max_image_bytes, "; retry later")),
                           "QUEUE_FULL", {{"retry_after_seconds", "1"}});
  }
  image_bytes_ += image_bytes;
  ++num_requests_;
  const int64_t arrival = next_arrival_++;
  request->arrival = arrival;
  request->received = absl::Now();
  // Commands are copyable, a request is not.
  auto shared = std::make_shared<std::unique_ptr<ActiveRequest>>(std::move(request));
  inbox_.push_back([this, shared] { Enqueue(std::move(*shared)); });
  return arrival;
}

absl::StatusOr<std::shared_ptr<const RequestImages>> Engine::ReadImages(
    std::vector<ImageFile> files, absl::Span<const int32_t> prompt_ids) {
  if (files.empty()) return nullptr;
  if (!pixels_.has_value()) {
    return rpc::InvalidField("images", options_.image_preparer.status().message());
  }
  return ReadRequestImages(*model_.spec().vision, *pixels_, std::move(files), prompt_ids);
}

std::optional<int32_t> Engine::image_token_id() const {
  if (!pixels_.has_value()) return std::nullopt;
  return placeholder_ids_.front();
}

std::string Engine::written_for_image() const {
  return pixels_.has_value() ? options_.image_preparer->placeholders().written : "";
}

absl::StatusOr<images::PlaceholderIds> Engine::ImagePlaceholders() const {
  if (!pixels_.has_value()) return options_.image_preparer.status();
  return images::FindPlaceholderIds(placeholder_ids_.front(),
                                    options_.image_preparer->placeholders(), tokenizer_);
}

absl::StatusOr<images::PlaceholderGrid> Engine::ImagePlaceholderGrid(const ImageFile& file,
                                                                     const std::string& place,
                                                                     images::ImageForm form) {
  if (!pixels_.has_value()) return options_.image_preparer.status();
  const std::string key = model::ImageKey(images::ImageDigest(*file), form);
  ASSIGN_OR_RETURN(const auto image,
                   pixels_->Get(key, *file, place, model::PixelCache::Turn::kWait, form));
  return image->placeholders;
}

absl::Status Engine::CheckPlaceholders(const GenerationRequest& spec) const {
  if (spec.images != nullptr || placeholder_ids_.empty()) return absl::OkStatus();
  const auto found = std::find_first_of(spec.prompt_ids.begin(), spec.prompt_ids.end(),
                                        placeholder_ids_.begin(), placeholder_ids_.end());
  if (found == spec.prompt_ids.end()) return absl::OkStatus();
  return rpc::InvalidField(
      "images",
      absl::StrCat("token ", found - spec.prompt_ids.begin(), ": id ", *found,
                   " stands for a row of an image or a video; expected its image, found none"));
}

absl::StatusOr<int64_t> Engine::Submit(GenerationRequest spec, GenerationCallbacks callbacks) {
  RETURN_IF_ERROR(CheckRequest(spec, limits_));
  RETURN_IF_ERROR(CheckPlaceholders(spec));
  RETURN_IF_ERROR(CheckBegun(spec, limits_));
  auto request = std::make_unique<ActiveRequest>();
  const int64_t room = limits_.max_model_len - static_cast<int64_t>(spec.prompt_ids.size());
  request->max_tokens = std::min(spec.max_tokens.value_or(room), room);
  request->seed = spec.seed.has_value() ? *spec.seed : DrawSeed();
  request->stop_ids = StopIds(spec, options_.eos_token_ids);
  request->num_queued_tokens =
      static_cast<int64_t>(spec.prompt_ids.size()) + spec.n * request->max_tokens;
  for (const BegunSample& begun : spec.begun) {
    request->num_queued_tokens -=
        begun.ended ? request->max_tokens : static_cast<int64_t>(begun.token_ids.size());
  }
  request->spec = std::move(spec);
  request->callbacks = std::move(callbacks);
  return Accept(std::move(request));
}

absl::StatusOr<int64_t> Engine::Score(ScoreRequest spec,
                                      std::function<void(absl::StatusOr<ScoreResult>)> done) {
  RETURN_IF_ERROR(CheckRequest(spec, limits_));
  if (spec.num_top_logprobs > 0 && options_.ranks != nullptr) {
    return rpc::InvalidField("top_logprobs",
                             "not available for given tokens on a tensor-parallel rollout "
                             "(rollout.tensor_model_parallel_size > 1)");
  }
  if (limits_.classifies) {
    // Nothing that follows changes an earlier token's result.
    spec.token_ids.resize(model::NumClassifiedTokens(spec.token_ids, model_.spec().pad_token_id));
  }
  auto request = std::make_unique<ActiveRequest>();
  request->scores = true;
  request->classifies = limits_.classifies;
  request->score_temperature = spec.temperature;
  request->first_scored = std::max<int64_t>(1, spec.first_scored);
  request->on_score = std::move(done);
  request->num_queued_tokens = static_cast<int64_t>(spec.token_ids.size());
  request->spec.prompt_ids = std::move(spec.token_ids);
  request->spec.images = std::move(spec.images);
  request->spec.num_top_logprobs = spec.num_top_logprobs;
  RETURN_IF_ERROR(CheckPlaceholders(request->spec));
  return Accept(std::move(request));
}

void Engine::Cancel(int64_t handle) {
  Post([this, handle] {
    const auto of_handle = [&](const auto& request) { return request->arrival == handle; };
    const auto held = std::find_if(held_.begin(), held_.end(), of_handle);
    if (held != held_.end()) {
      std::unique_ptr<ActiveRequest> request = std::move(*held);
      held_.erase(held);
      Enqueue(std::move(request), /*hold=*/false);
    }
    const auto found = requests_.find(handle);
    if (found == requests_.end()) return;
    FinishRequest(*found->second, absl::CancelledError("the caller cancelled"));
  });
}

void Engine::Abort(std::vector<std::string> request_ids, bool all,
                   std::function<void(int64_t)> done) {
  Post([this, ids = std::move(request_ids), all, done = std::move(done)] {
    const auto named = [&](const ActiveRequest& request) {
      return all || std::find(ids.begin(), ids.end(), request.spec.id) != ids.end();
    };
    for (auto& held : std::exchange(held_, {})) {
      const bool hold = !named(*held);
      Enqueue(std::move(held), hold);
    }
    std::vector<ActiveRequest*> chosen;
    for (const auto& [arrival, request] : requests_) {
      if (named(*request)) chosen.push_back(request.get());
    }
    for (ActiveRequest* request : chosen) AbortRequest(*request);
    done(static_cast<int64_t>(chosen.size()));
  });
}

void Engine::Pause(PauseMode mode, Release release, std::function<void(int64_t)> done) {
  Post([this, mode, release, done = std::move(done)] {
    const auto stand_still = [this, release, done] {
      paused_ = true;
      ReleaseMemory(release);
      UpdateInfo();
      done(static_cast<int64_t>(requests_.size()));
    };
    if (mode == PauseMode::kWait && !paused_ && !requests_.empty()) {
      when_idle_.push_back(stand_still);
      return;
    }
    if (mode == PauseMode::kAbort) AbortAll();
    stand_still();
  });
}

void Engine::Resume(std::function<void()> done) {
  Post([this, done = std::move(done)] {
    paused_ = false;
    released_.kv_cache = false;  // it is taken again as it is used
    UpdateInfo();
    done();
  });
}

void Engine::Drain(absl::Time deadline) {
  {
    absl::MutexLock lock(&mu_);
    draining_ = true;
  }
  Post([this, deadline] { drain_deadline_ = std::min(drain_deadline_, deadline); });
}

EngineInfo Engine::Info() const {
  absl::MutexLock lock(&mu_);
  EngineInfo info = info_;
  info.policy_version = weights_.live_version();
  info.draining = draining_;
  return info;
}

}  // namespace tandem::rollout
