#include "services/rollout/sessions/session.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/images/image_digest.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "services/rollout/sessions/shared_tokens.h"

namespace tandem::rollout {
namespace {

// Of a token on the wire, at most: a prompt's id; a sampled one's id and two log-probs.
constexpr int64_t kPromptTokenBytes = 3;

absl::Status Used(absl::string_view what) {
  return rpc::WithReason(absl::InvalidArgumentError(what), "SESSION_LIMIT");
}

}  // namespace

Session::Session(v1::OpenSessionRequest request, absl::Time expires,
                 std::shared_ptr<std::atomic<int64_t>> all_bytes, int64_t max_all_bytes,
                 int64_t routed_bytes_per_token)
    : request_(std::move(request)),
      expires_(expires),
      all_bytes_(std::move(all_bytes)),
      max_all_bytes_(max_all_bytes),
      routed_bytes_per_token_(routed_bytes_per_token) {}

Session::~Session() {
  absl::MutexLock lock(&mu_);
  *all_bytes_ -= bytes_;
}

absl::Status Session::CheckOpen() const {
  absl::MutexLock lock(&mu_);
  if (!is_closed_ && !expired(absl::Now())) return absl::OkStatus();
  return rpc::WithReason(
      absl::UnauthenticatedError(is_closed_ ? "the session is closed" : "the session has expired"),
      "SESSION_ENDED");
}

void SetSampling(const v1::SamplingParams& sampling, GenerationRequest& generation) {
  FilterParams filter;
  if (sampling.has_temperature()) filter.temperature = sampling.temperature();
  if (sampling.has_top_k()) filter.top_k = sampling.top_k();
  if (sampling.has_top_p()) filter.top_p = sampling.top_p();
  if (sampling.has_min_p()) filter.min_p = sampling.min_p();
  generation.filter = filter;
  generation.penalties = {};
  generation.stop.insert(generation.stop.end(), sampling.stop().begin(), sampling.stop().end());
  generation.stop_token_ids.insert(generation.stop_token_ids.end(),
                                   sampling.stop_token_ids().begin(),
                                   sampling.stop_token_ids().end());
}

absl::Status Session::CheckRoom(int64_t num_prompt_tokens, int64_t image_bytes, int32_t n,
                                int64_t routed_bytes) const {
  if (num_calls_ >= kMaxSessionCalls) {
    return Used(absl::StrCat("the session has made ", kMaxSessionCalls, " calls, its limit"));
  }
  if (record_bytes_ + image_bytes + num_prompt_tokens * kPromptTokenBytes * n > kMaxSessionBytes) {
    return Used(absl::StrCat(
        "the session has recorded ", record_bytes_, " of at most ", kMaxSessionBytes,
        " bytes, which leaves no room for a prompt of ", num_prompt_tokens, " tokens",
        image_bytes == 0 ? "" : absl::StrCat(" and ", image_bytes, " bytes of new images")));
  }
  if (routed_bytes > 0 && record_bytes_ + reserved_bytes_ + routed_bytes > kMaxSessionBytes) {
    const std::string problem =
        absl::StrCat("the session has recorded ", record_bytes_, " of at most ", kMaxSessionBytes,
                     " bytes, ", reserved_bytes_,
                     " are kept for running calls, and the experts of this call's tokens may take ",
                     routed_bytes);
    if (reserved_bytes_ == 0) return Used(problem);
    return absl::ResourceExhaustedError(absl::StrCat(problem, "; try again after them"));
  }
  if (*all_bytes_ > max_all_bytes_) {
    return absl::ResourceExhaustedError(
        "the rollout's sessions hold all the memory there is for them; close some");
  }
  return absl::OkStatus();
}

int64_t Session::RoutedBytes(const GenerationRequest& generation,
                             const std::vector<std::string>& image_digests,
                             int64_t max_tokens) const {
  if (routed_bytes_per_token_ == 0) return 0;
  int64_t shared = 0;
  for (const auto& [place, call] : recorded_) {
    shared = std::max(shared, NumSharedTokens(call, generation.prompt_ids, image_digests));
  }
  const int64_t given = static_cast<int64_t>(generation.prompt_ids.size()) - shared;
  return (given + max_tokens * generation.n) * routed_bytes_per_token_;
}

absl::StatusOr<Session::Call> Session::Begin(int64_t num_prompt_tokens,
                                             GenerationRequest& generation,
                                             const std::vector<SessionImage>& images) {
  RETURN_IF_ERROR(CheckOpen());
  std::vector<std::string> image_digests;
  std::map<std::string, int64_t> sizes;
  for (const SessionImage& image : images) {
    image_digests.push_back(images::ImageDigest(*image));
    sizes[image_digests.back()] = static_cast<int64_t>(image->size());
  }
  const int32_t n = generation.n;
  constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  int64_t most = generation.max_tokens.value_or(kNoLimit);
  if (request_.sampling().has_max_tokens()) {
    most = std::min(most, request_.sampling().max_tokens());
  }
  if (request_.max_length() > 0) {
    const int64_t room = request_.max_length() - num_prompt_tokens;
    if (room <= 0) {
      return rpc::WithReason(
          absl::InvalidArgumentError(absl::StrCat(
              "expected a prompt of fewer than ", request_.max_length(),
              " tokens, the longest sequence of the session, found ", num_prompt_tokens)),
          "CONTEXT_TOO_LONG");
    }
    most = std::min(most, room);
  }
  absl::MutexLock lock(&mu_);
  int64_t image_bytes = 0;
  for (const auto& [digest, size] : sizes) image_bytes += images_.contains(digest) ? 0 : size;
  int64_t reserved = 0;
  if (request_.max_tokens() > 0) {
    const int64_t left = request_.max_tokens() - num_sampled_;
    if (left < n) {
      return Used(absl::StrCat("the session has sampled ", num_sampled_, " of its ",
                               request_.max_tokens(), " tokens, which leaves none for ", n,
                               n == 1 ? " choice" : " choices"));
    }
    if (left - num_reserved_ < n) {
      return absl::ResourceExhaustedError(
          "running calls of the session may sample all tokens that are left; try again after them");
    }
    most = std::min(most, (left - num_reserved_) / n);
    reserved = most * n;
  }
  const int64_t routed_bytes = RoutedBytes(generation, image_digests, most == kNoLimit ? 0 : most);
  RETURN_IF_ERROR(CheckRoom(num_prompt_tokens, image_bytes, n, routed_bytes));
  generation.return_routed_experts = request_.return_routed_experts();
  if (most != kNoLimit) {
    generation.max_tokens = most;
    generation.min_tokens = std::min(generation.min_tokens, most);
  }
  const int64_t number = num_calls_++;
  if (!generation.seed.has_value() && request_.sampling().has_seed()) {
    generation.seed =
        request_.sampling().seed() + static_cast<uint64_t>(number) * 0xE7037ED1A0B428DBULL;
  }
  num_reserved_ += reserved;
  reserved_bytes_ += routed_bytes;
  return Call(shared_from_this(), number, reserved, routed_bytes);
}

Session::Call::~Call() {
  if (session_ == nullptr) return;
  absl::MutexLock lock(&session_->mu_);
  session_->num_reserved_ -= reserved_;
  session_->reserved_bytes_ -= reserved_bytes_;
}

void Session::Call::Record(int32_t sample, v1::RecordedCall recorded, std::optional<PastTurn> turn,
                           const std::vector<std::string>& digests,
                           const std::vector<SessionImage>& images) {
  Session& session = *session_;
  absl::MutexLock lock(&session.mu_);
  if (session.is_closed_) return;
  session.ShareExperts({number_, sample}, recorded);
  const auto bytes =
      static_cast<int64_t>(recorded.ByteSizeLong()) + session.KeepImages(recorded, images);
  session.num_sampled_ += recorded.token_ids_size();
  session.record_bytes_ += bytes;
  const int64_t held = bytes + (turn.has_value() ? turn->bytes() : 0);
  session.bytes_ += held;
  *session.all_bytes_ += held;
  session.recorded_[{number_, sample}] = std::move(recorded);
  if (!turn.has_value()) return;
  if (digests.empty()) {
    session.turns_.AddText(*std::move(turn));
  } else {
    session.turns_.AddChat(digests, *std::move(turn));
  }
}

int64_t Session::KeepImages(const v1::RecordedCall& recorded,
                            const std::vector<SessionImage>& images) {
  int64_t bytes = 0;
  for (size_t i = 0; i < images.size(); ++i) {
    const bool is_new =
        images_.try_emplace(recorded.image_digests(static_cast<int>(i)), images[i]).second;
    if (is_new) bytes += static_cast<int64_t>(images[i]->size());
  }
  return bytes;
}

void Session::ShareExperts(const Place& place, v1::RecordedCall& recorded) {
  const int64_t size = recorded.prompt_token_ids_size();
  if (recorded.prompt_routed_experts().empty() || size == 0) return;
  int64_t shared = 0;
  for (const auto& [earlier, call] : recorded_) {
    const int64_t same =
        NumSharedTokens(call, recorded.prompt_token_ids(), recorded.image_digests());
    if (same <= shared) continue;
    shared = same;
    shared_with_[place] = earlier;
  }
  const size_t each = recorded.prompt_routed_experts().size() / static_cast<size_t>(size);
  recorded.mutable_prompt_routed_experts()->erase(0, static_cast<size_t>(shared) * each);
  recorded.set_shared_tokens(shared);
}

std::shared_ptr<const PastTurn> Session::FindChat(const std::vector<std::string>& digests) const {
  absl::MutexLock lock(&mu_);
  return turns_.FindChat(digests);
}

std::shared_ptr<const PastTurn> Session::FindText(absl::string_view text) const {
  absl::MutexLock lock(&mu_);
  return turns_.FindText(text);
}

v1::CloseSessionResponse Session::Close() {
  v1::CloseSessionResponse out;
  absl::MutexLock lock(&mu_);
  is_closed_ = true;
  std::map<Place, int32_t> index;
  for (auto& [place, call] : recorded_) {
    index[place] = out.calls_size();
    *out.add_calls() = std::move(call);
  }
  for (const auto& [place, earlier] : shared_with_) {
    out.mutable_calls(index[place])->set_shared_with(index[earlier]);
  }
  recorded_.clear();
  for (const auto& [digest, file] : images_) out.add_images()->set_data(*file);
  images_.clear();
  return out;
}

}  // namespace tandem::rollout
