#include "tools/tandem/driver/recorded_experts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/begins_with.h"

namespace tandem::driver {
namespace {

using rollout::v1::RecordedCall;

int64_t NumTokens(const RecordedCall& call) {
  return call.prompt_token_ids_size() + call.token_ids_size();
}

uint32_t TokenAt(const RecordedCall& call, int64_t i) {
  const int64_t of_prompt = call.prompt_token_ids_size();
  return i < of_prompt ? call.prompt_token_ids(static_cast<int>(i))
                       : call.token_ids(static_cast<int>(i - of_prompt));
}

}  // namespace

absl::StatusOr<RecordedExperts> RecordedExperts::Of(const std::vector<RecordedCall>& calls) {
  RecordedExperts out(calls);
  if (calls.empty() || calls.front().routed_experts().empty()) return out;
  out.bytes_per_token_ = calls.front().routed_experts().size() /
                         static_cast<size_t>(std::max(1, calls.front().token_ids_size()));
  for (size_t i = 0; i < calls.size(); ++i) RETURN_IF_ERROR(out.Check(static_cast<int>(i)));
  return out;
}

absl::Status RecordedExperts::Check(int index) const {
  const RecordedCall& call = (*calls_)[index];
  const int64_t shared = call.shared_tokens();
  const int64_t own = call.prompt_token_ids_size() - shared;
  const auto bytes = [this](int64_t tokens) {
    return static_cast<size_t>(tokens) * bytes_per_token_;
  };
  const bool fits = shared >= 0 && own >= 0 && call.prompt_routed_experts().size() == bytes(own) &&
                    call.routed_experts().size() == bytes(call.token_ids_size());
  if (!fits) {
    return absl::InternalError(absl::StrCat(
        "recorded call ", index, ": expected ", bytes_per_token_, " bytes of experts for each of ",
        own, " prompt tokens and ", call.token_ids_size(), " sampled ones, found ",
        call.prompt_routed_experts().size(), " and ", call.routed_experts().size()));
  }
  if (shared == 0) return absl::OkStatus();
  const int with = call.shared_with();
  bool is_same = with >= 0 && with < static_cast<int>(calls_->size()) && with != index &&
                 shared <= NumTokens((*calls_)[with]);
  // Images stand for tokens too.
  is_same = is_same && BeginsWith(call.image_digests(), (*calls_)[with].image_digests());
  for (int64_t i = 0; is_same && i < shared; ++i) {
    is_same = TokenAt(call, i) == TokenAt((*calls_)[with], i);
  }
  if (is_same) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("recorded call ", index, ": expected ", shared,
                                          " tokens that call ", with, " begins with too"));
}

absl::StatusOr<std::string> RecordedExperts::Of(int call, int64_t first) const {
  std::string out;
  const int64_t end = NumTokens((*calls_)[call]);
  while (first < end) {
    // The call that has the experts of token `first`, and up to where all on the way to it share them.
    int64_t until = end;
    int holder = call;
    size_t num_steps = 0;
    while (first < (*calls_)[holder].shared_tokens()) {
      if (++num_steps > calls_->size()) {
        return absl::InternalError(
            absl::StrCat("recorded call ", call, ": token ", first, ": no call has its experts"));
      }
      until = std::min<int64_t>(until, (*calls_)[holder].shared_tokens());
      holder = (*calls_)[holder].shared_with();
    }
    const RecordedCall& held = (*calls_)[holder];
    const int64_t of_prompt = held.prompt_token_ids_size();
    const bool in_prompt = first < of_prompt;
    const int64_t begin = in_prompt ? held.shared_tokens() : of_prompt;
    const std::string& bytes = in_prompt ? held.prompt_routed_experts() : held.routed_experts();
    until = std::min(until, in_prompt ? of_prompt : NumTokens(held));
    out.append(bytes, static_cast<size_t>(first - begin) * bytes_per_token_,
               static_cast<size_t>(until - first) * bytes_per_token_);
    first = until;
  }
  return out;
}

}  // namespace tandem::driver
