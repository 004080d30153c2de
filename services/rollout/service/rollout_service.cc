#include "services/rollout/service/rollout_service.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/io/dtype.h"
#include "common/model/torch_dtype.h"
#include "common/rpc/enum_check.h"
#include "common/rpc/request_id.h"
#include "common/rpc/status_conversion.h"
#include "common/rpc/transport_security.h"
#include "common/version/version.h"
#include "services/rollout/service/score_reactor.h"

namespace tandem::rollout {
namespace {

constexpr size_t kMaxProbeBytes = 64 << 10;

absl::Status NoSessions() { return absl::UnimplementedError("this server records no sessions"); }

}  // namespace

grpc::ServerWriteReactor<v1::GenerateResponse>* RolloutServiceImpl::Generate(
    grpc::CallbackServerContext*, const v1::GenerateRequest* request) {
  if (hooks_.owner != nullptr) hooks_.owner->Hear(request->incarnation());
  return GenerateReactor::Start(engine_, texts_, hooks_.metrics, *request);
}

grpc::ServerUnaryReactor* RolloutServiceImpl::Abort(grpc::CallbackServerContext* context,
                                                    const v1::AbortRequest* request,
                                                    v1::AbortResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  for (int i = 0; i < request->request_ids_size(); ++i) {
    const absl::Status valid =
        rpc::CheckRequestId(request->request_ids(i), absl::StrCat("request_ids[", i, "]"));
    if (valid.ok()) continue;
    reactor->Finish(rpc::ToGrpcStatus(valid));
    return reactor;
  }
  std::vector<std::string> ids(request->request_ids().begin(), request->request_ids().end());
  engine_.Abort(std::move(ids), request->all(), [reactor, response](int64_t num_aborted) {
    response->set_num_aborted(num_aborted);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* RolloutServiceImpl::Pause(grpc::CallbackServerContext* context,
                                                    const v1::PauseRequest* request,
                                                    v1::PauseResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (const absl::Status known = rpc::CheckEnums(*request); !known.ok()) {
    reactor->Finish(rpc::ToGrpcStatus(known));
    return reactor;
  }
  PauseMode mode = PauseMode::kKeep;
  switch (request->mode()) {
    case v1::PAUSE_MODE_UNSPECIFIED:
    case v1::PAUSE_MODE_KEEP:
      break;
    case v1::PAUSE_MODE_ABORT:
      mode = PauseMode::kAbort;
      break;
    case v1::PAUSE_MODE_WAIT:
      mode = PauseMode::kWait;
      break;
    default:
      reactor->Finish(rpc::ToGrpcStatus(
          rpc::InvalidField("mode", "expected KEEP, ABORT or WAIT, found an unknown value")));
      return reactor;
  }
  Release release;
  for (const int memory : request->release()) {
    if (memory == v1::RELEASED_MEMORY_KV) {
      release.kv_cache = true;
    } else if (memory == v1::RELEASED_MEMORY_WEIGHTS) {
      release.weights = true;
    } else {
      reactor->Finish(rpc::ToGrpcStatus(
          rpc::InvalidField("release", "expected KV or WEIGHTS, found an unknown value")));
      return reactor;
    }
  }
  if (const int64_t version = hooks_.updating_to(); release.weights && version >= 0) {
    reactor->Finish(rpc::ToGrpcStatus(rpc::WithReason(
        absl::FailedPreconditionError(absl::StrCat(
            "release: version ", version, " is being received; pause after it is committed")),
        "UPDATE_IN_PROGRESS")));
    return reactor;
  }
  engine_.Pause(mode, release, [reactor, response](int64_t num_frozen) {
    response->set_num_frozen_requests(num_frozen);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* RolloutServiceImpl::Resume(grpc::CallbackServerContext* context,
                                                     const v1::ResumeRequest*,
                                                     v1::ResumeResponse*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const auto resume = [this, reactor](const absl::Status& loaded) {
    if (!loaded.ok()) {
      reactor->Finish(rpc::ToGrpcStatus(loaded));
      return;
    }
    engine_.Resume([reactor] { reactor->Finish(grpc::Status::OK); });
  };
  if (hooks_.reload && engine_.Info().released.weights) {
    hooks_.reload(resume);
  } else {
    resume(absl::OkStatus());
  }
  return reactor;
}

grpc::ServerUnaryReactor* RolloutServiceImpl::Score(grpc::CallbackServerContext*,
                                                    const v1::ScoreRequest* request,
                                                    v1::ScoreResponse* response) {
  return ScoreReactor::Start(engine_, text_pool_, *request, response);
}

grpc::ServerUnaryReactor* RolloutServiceImpl::OpenSession(grpc::CallbackServerContext* context,
                                                          const v1::OpenSessionRequest* request,
                                                          v1::OpenSessionResponse* response) {
  if (hooks_.owner != nullptr) hooks_.owner->Hear(request->incarnation());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const grpc::string_ref authority = context->ExperimentalGetAuthority();
  absl::StatusOr<std::string> url = NoSessions();
  if (hooks_.sessions != nullptr) {
    url = hooks_.sessions->Open(*request, engine_.limits(), {authority.data(), authority.size()});
  }
  if (url.ok()) response->set_url(*std::move(url));
  reactor->Finish(rpc::ToGrpcStatus(url.status()));
  return reactor;
}

grpc::ServerUnaryReactor* RolloutServiceImpl::CloseSession(grpc::CallbackServerContext* context,
                                                           const v1::CloseSessionRequest* request,
                                                           v1::CloseSessionResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::StatusOr<v1::CloseSessionResponse> closed = NoSessions();
  if (hooks_.sessions != nullptr) closed = hooks_.sessions->Close(request->session_id());
  if (closed.ok()) *response = *std::move(closed);
  reactor->Finish(rpc::ToGrpcStatus(closed.status()));
  return reactor;
}

void RolloutServiceImpl::SetRankAddresses(std::vector<std::string> addresses) {
  absl::MutexLock lock(&mu_);
  rank_addresses_ = std::move(addresses);
}

v1::RolloutState RolloutServiceImpl::State(const EngineInfo& info, int64_t updating_to) const {
  if (info.draining) return v1::ROLLOUT_STATE_DRAINING;
  if (info.policy_version < 0) return v1::ROLLOUT_STATE_STALE;
  if (info.paused) return v1::ROLLOUT_STATE_PAUSED;
  return updating_to >= 0 ? v1::ROLLOUT_STATE_UPDATING : v1::ROLLOUT_STATE_SERVING;
}

grpc::ServerUnaryReactor* RolloutServiceImpl::GetServerInfo(grpc::CallbackServerContext* context,
                                                            const v1::GetServerInfoRequest* request,
                                                            v1::GetServerInfoResponse* response) {
  const EngineInfo info = engine_.Info();
  if (hooks_.owner != nullptr) {
    // An observer may ask; it neither keeps a run's hold alive nor ends it.
    if (rpc::TransportSecurity::OfProcess()->HasRole(*context, security::Role::kDriver)) {
      hooks_.owner->Hear(request->incarnation());
      if (!request->ended_run_id().empty()) {
        hooks_.owner->Release(request->incarnation(), request->ended_run_id());
      }
    }
    if (auto owner = hooks_.owner->owner()) *response->mutable_owner() = *std::move(owner);
  }
  const model::ModelSpec& spec = engine_.model().spec();
  const int64_t updating_to = hooks_.updating_to();
  response->set_state(State(info, updating_to));
  response->set_policy_version(info.policy_version);
  response->set_incarnation(info.policy_version < 0 ? 0 : info.incarnation);
  response->set_updating_to_version(updating_to);
  response->set_architecture(spec.architecture);
  response->set_vocab_size(spec.vocab_size);
  response->set_num_parameters(num_parameters_);
  response->set_max_model_len(engine_.limits().max_model_len);
  response->set_dtype(std::string(io::TorchName(model::FileDType(engine_.options().dtype))));
  response->set_has_tokenizer(tokenizer_ != nullptr);
  response->set_num_running_requests(info.num_running_requests);
  response->set_num_waiting_requests(info.num_waiting_requests);
  response->set_num_queued_tokens(info.num_queued_tokens);
  response->set_num_kv_blocks(info.num_kv_blocks);
  response->set_num_free_kv_blocks(info.num_free_kv_blocks);
  response->set_num_generated_tokens(info.num_generated_tokens);
  response->set_num_prefilled_tokens(info.scheduler.num_prefilled_tokens);
  response->set_num_cached_tokens(info.scheduler.num_cached_tokens);
  response->set_num_preemptions(info.scheduler.num_preemptions);
  if (info.images.has_value()) {
    response->set_num_encoded_images(info.images->encoder.num_images);
    response->set_num_encoded_patches(info.images->encoder.num_patches);
    response->set_image_encode_seconds(info.images->encoder.seconds);
  }
  for (const int32_t id : engine_.options().eos_token_ids) response->add_eos_token_ids(id);
  response->set_build_version(std::string(version::BuildVersion()));
  response->set_device(engine_.options().device_description);
  if (request->probe().size() <= kMaxProbeBytes) response->set_probe(request->probe());
  response->set_instance_id(instance_id_);
  response->set_oldest_wait_seconds(info.oldest_wait == absl::InfiniteFuture()
                                        ? 0
                                        : absl::ToDoubleSeconds(absl::Now() - info.oldest_wait));
  if (info.released.kv_cache) response->add_released(v1::RELEASED_MEMORY_KV);
  if (info.released.weights) response->add_released(v1::RELEASED_MEMORY_WEIGHTS);
  {
    absl::MutexLock lock(&mu_);
    for (const std::string& address : rank_addresses_) response->add_rank_addresses(address);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace tandem::rollout
