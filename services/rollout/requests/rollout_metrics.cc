#include "services/rollout/requests/rollout_metrics.h"

#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/time/clock.h"
#include "common/metrics/metric_family.h"

namespace tandem::rollout {
namespace {

using metrics::CounterFamily;
using metrics::GaugeFamily;

// Seconds. They reach from a step of a small model to a request that fills a long context.
const prometheus::Histogram::BucketBoundaries kTokenSeconds = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5};
const prometheus::Histogram::BucketBoundaries kRequestSeconds = {
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600};

prometheus::Histogram& AddHistogram(prometheus::Registry& registry, const std::string& name,
                                    const std::string& help,
                                    const prometheus::Histogram::BucketBoundaries& boundaries) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, boundaries);
}

// Metrics of a model that takes images.
void AddImages(const EngineInfo::Images& images, std::vector<prometheus::MetricFamily>& out) {
  const auto gauge = [&](const char* name, const char* help, int64_t value) {
    out.push_back(GaugeFamily(name, help, static_cast<double>(value)));
  };
  const auto counter = [&](const char* name, const char* help, double value) {
    out.push_back(CounterFamily(name, help, value));
  };
  const auto count = [&](const char* name, const char* help, int64_t value) {
    counter(name, help, static_cast<double>(value));
  };
  count("tandem_images_encoded_total", "Images that the vision tower encoded.",
        images.encoder.num_images);
  count("tandem_image_patches_encoded_total", "Patches of the encoded images.",
        images.encoder.num_patches);
  counter("tandem_image_encode_seconds_total", "Time for which decoding waited for the tower.",
          images.encoder.seconds);
  gauge("tandem_num_images_waiting",
        "Images that the last step asked for and that later ones encode.",
        images.encoder.num_waiting);
  gauge("tandem_num_images_decoding", "Images that are decoded, or wait for it.",
        images.pixels.num_waiting);
  count("tandem_encoder_cache_queries_total", "Images of prompts whose rows were read.",
        images.encoder.num_row_queries);
  count("tandem_encoder_cache_hits_total", "Those of them that an earlier prompt had read.",
        images.encoder.num_row_hits);
  count("tandem_encoder_cache_evictions_total", "Images whose rows made room for others'.",
        images.encoder.num_rows_evicted);
  gauge("tandem_encoder_cache_bytes", "Rows of encoded images that are kept.",
        images.encoder.row_bytes);
  count("tandem_mm_cache_queries_total", "Images whose pixels were asked for.",
        images.pixels.num_hits + images.pixels.num_decoded);
  count("tandem_mm_cache_hits_total", "Those of them that were not decoded again.",
        images.pixels.num_hits);
  count("tandem_mm_cache_evictions_total", "Images whose pixels made room for others'.",
        images.pixels.num_evicted);
  gauge("tandem_mm_cache_bytes", "Pixels of decoded images that are kept.",
        images.pixels.num_bytes);
}

const char* NameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    default:
      return "abort";
  }
}

}  // namespace

RolloutMetrics::RolloutMetrics(std::function<EngineInfo()> info, const RolloutOwner* owner)
    : info_(std::move(info)),
      owner_(owner),
      prompt_tokens_(prometheus::BuildCounter()
                         .Name("tandem_prompt_tokens_total")
                         .Help("Prompt tokens of requests that received their first token.")
                         .Register(registry_)
                         .Add({})),
      samples_(prometheus::BuildCounter()
                   .Name("tandem_samples_finished_total")
                   .Help("Finished samples, by finish reason.")
                   .Register(registry_)),
      requests_(prometheus::BuildCounter()
                    .Name("tandem_requests_total")
                    .Help("Finished Generate calls, by status code.")
                    .Register(registry_)),
      first_token_(AddHistogram(registry_, "tandem_time_to_first_token_seconds",
                                "Time from a request's arrival to its first streamed token.",
                                kRequestSeconds)),
      inter_token_(AddHistogram(registry_, "tandem_inter_token_latency_seconds",
                                "Time between two tokens of a streamed sample.", kTokenSeconds)),
      end_to_end_(AddHistogram(registry_, "tandem_e2e_request_latency_seconds",
                               "Time from a request's arrival to its end.", kRequestSeconds)) {
  // All of them from the start, so that a rate has something to begin at.
  for (const auto reason : {FinishReason::kStop, FinishReason::kLength, FinishReason::kAborted}) {
    Finished(reason);
  }
  requests_.Add({{"code", "ok"}});
}

void RolloutMetrics::Detach() {
  absl::MutexLock lock(&mu_);
  info_ = nullptr;
  owner_ = nullptr;
}

prometheus::Counter& RolloutMetrics::Finished(FinishReason reason) {
  return samples_.Add({{"finished_reason", NameOf(reason)}});
}

std::vector<prometheus::MetricFamily> RolloutMetrics::Collect() const {
  std::vector<prometheus::MetricFamily> out = registry_.Collect();
  absl::MutexLock lock(&mu_);
  if (!info_) return out;
  const EngineInfo info = info_();
  const auto gauge = [&](const char* name, const char* help, int64_t value) {
    out.push_back(GaugeFamily(name, help, static_cast<double>(value)));
  };
  const auto counter = [&](const char* name, const char* help, int64_t value) {
    out.push_back(CounterFamily(name, help, static_cast<double>(value)));
  };
  gauge("tandem_policy_version", "Version of the live weights; -1 before the first.",
        info.policy_version);
  gauge("tandem_num_requests_running", "Requests that hold blocks of the KV cache.",
        info.num_running_requests);
  gauge("tandem_num_requests_waiting", "Requests that wait to be scheduled.",
        info.num_waiting_requests);
  gauge("tandem_num_tokens_queued", "Tokens that admitted and waiting requests may still need.",
        info.num_queued_tokens);
  out.push_back(GaugeFamily(
      "tandem_request_queue_oldest_seconds",
      "Waiting time of the oldest request whose prompt is not computed yet; 0 if there is none.",
      info.oldest_wait == absl::InfiniteFuture()
          ? 0
          : absl::ToDoubleSeconds(absl::Now() - info.oldest_wait)));
  gauge("tandem_engine_paused", "1 while the scheduler is paused.", info.paused ? 1 : 0);
  gauge("tandem_kv_cache_blocks", "Blocks of the KV cache.", info.num_kv_blocks);
  const double used = info.num_kv_blocks == 0 ? 0
                                              : 1 - static_cast<double>(info.num_free_kv_blocks) /
                                                        static_cast<double>(info.num_kv_blocks);
  out.push_back(GaugeFamily("tandem_kv_cache_usage_ratio",
                            "Share of the KV cache's blocks that requests hold.", used));
  counter("tandem_generation_tokens_total", "Sampled tokens.", info.num_generated_tokens);
  counter("tandem_prefill_tokens_total",
          "Prompt tokens, and tokens of recomputed requests, that the model computed.",
          info.scheduler.num_prefilled_tokens);
  counter("tandem_prefix_cache_hits_total", "Tokens found in the prefix cache.",
          info.scheduler.num_cached_tokens);
  counter("tandem_prefix_cache_queries_total",
          "Tokens looked up in the prefix cache: found and computed ones.",
          info.scheduler.num_cached_tokens + info.scheduler.num_prefilled_tokens);
  counter("tandem_num_preemptions_total",
          "Preempted sequences: they returned their blocks and waited.",
          info.scheduler.num_preemptions);
  if (info.images.has_value()) AddImages(*info.images, out);
  if (owner_ == nullptr) return out;
  counter("tandem_rollout_take_overs_total",
          "Updates by which another run's trainer took over the rollout.",
          owner_->num_take_overs());
  counter("tandem_refused_trainers_total",
          "Refused updates of other runs' trainers or of older incarnations.",
          owner_->num_refused());
  return out;
}

void RolloutMetrics::Request::OnChunk(const SampleChunk& chunk) {
  if (metrics_ == nullptr) return;
  const absl::Time now = absl::Now();
  if (!chunk.token_ids.empty()) {
    if (!begun_) {
      begun_ = true;
      metrics_->prompt_tokens_.Increment(static_cast<double>(chunk.num_prompt_tokens));
      // Requests without streaming do not show the first token's time.
      if (chunk.token_ids.size() == 1) {
        metrics_->first_token_.Observe(absl::ToDoubleSeconds(now - start_));
      }
    }
    const auto [last, is_new] = last_token_.try_emplace(chunk.index, now);
    // A chunk of several tokens has no time for each.
    if (!is_new && chunk.token_ids.size() == 1) {
      metrics_->inter_token_.Observe(absl::ToDoubleSeconds(now - last->second));
    }
    last->second = now;
  }
  if (chunk.finish_reason != FinishReason::kNone) {
    metrics_->Finished(chunk.finish_reason).Increment();
  }
}

void RolloutMetrics::Request::OnDone(const absl::Status& status) {
  if (metrics_ == nullptr) return;
  metrics_->end_to_end_.Observe(absl::ToDoubleSeconds(absl::Now() - start_));
  metrics_->requests_
      .Add({{"code",
             status.ok() ? "ok" : absl::AsciiStrToLower(absl::StatusCodeToString(status.code()))}})
      .Increment();
}

}  // namespace tandem::rollout
