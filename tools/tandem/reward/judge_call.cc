#include "tools/tandem/reward/judge_call.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"

namespace tandem::reward {
namespace {

constexpr size_t kLongestReason = 300;

// What others wrote, for an error of one line.
std::string Quote(absl::string_view text) {
  return absl::Utf8SafeCHexEscape(text.substr(0, kLongestReason));
}

// The value at `key` of an object; null if there is none.
const nlohmann::json* At(const nlohmann::json* json, const char* key) {
  if (json == nullptr || !json->is_object()) return nullptr;
  const auto found = json->find(key);
  return found == json->end() ? nullptr : &*found;
}

// {"choices": [{"message": {"content": "..."}}]}; null if the body is another.
const std::string* ContentOf(const nlohmann::json& body) {
  const nlohmann::json* const choices = At(&body, "choices");
  if (choices == nullptr || !choices->is_array() || choices->empty()) return nullptr;
  const nlohmann::json* const content = At(At(&choices->front(), "message"), "content");
  return content == nullptr ? nullptr : content->get_ptr<const std::string*>();
}

// What the judge says of an error: {"error": {"message": "..."}}, or its words as they are.
std::string ReasonOf(const http::Response& response) {
  const nlohmann::json body =
      nlohmann::json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  const nlohmann::json* const error = At(&body, "error");
  const nlohmann::json* const message =
      error != nullptr && error->is_string() ? error : At(error, "message");
  if (message != nullptr && message->is_string()) return Quote(message->get<std::string>());
  return Quote(response.body);
}

// Seconds, or a date.
std::optional<absl::Duration> RetryAfter(const http::Response& response) {
  for (const auto& [name, value] : response.headers) {
    if (!absl::EqualsIgnoreCase(name, "Retry-After")) continue;
    int64_t seconds = 0;
    if (absl::SimpleAtoi(value, &seconds)) {
      if (seconds < 0) return std::nullopt;
      return absl::Seconds(seconds);
    }
    absl::Time time;
    std::string error;
    if (!absl::ParseTime("%a, %d %b %Y %H:%M:%S GMT", absl::StripAsciiWhitespace(value), &time,
                         &error)) {
      return std::nullopt;
    }
    return std::max(absl::ZeroDuration(), time - absl::Now());
  }
  return std::nullopt;
}

// 408, 409, 425 and 429 are about the moment, not about the request.
bool IsPassing(int code) {
  return code >= 500 || code == 408 || code == 409 || code == 425 || code == 429;
}

}  // namespace

JudgeAnswer AskJudge(const JudgeEndpoint& judge, const std::string& body, absl::Time deadline,
                     const std::function<bool()>& cancelled) {
  http::PostRequest request{.url = judge.url, .body = body};
  request.headers.emplace_back("Accept", "application/json");
  if (!judge.api_key.empty()) {
    request.headers.emplace_back("Authorization", absl::StrCat("Bearer ", judge.api_key));
  }
  const absl::StatusOr<http::Response> response =
      http::Post(std::move(request), deadline, cancelled);
  const std::string place = absl::StrCat("the judge at ", judge.url.ToString());
  if (!response.ok()) {
    // A certificate that is not accepted will not be accepted later.
    return {.text = absl::Status(response.status().code(),
                                 absl::StrCat(place, ": ", response.status().message())),
            .may_retry = !absl::IsUnauthenticated(response.status()) &&
                         !absl::IsCancelled(response.status())};
  }
  if (response->code != 200) {
    const bool is_passing = IsPassing(response->code);
    const std::string message =
        absl::StrCat(place, " answered HTTP ", response->code, ": ", ReasonOf(*response));
    return {.text = is_passing ? absl::UnavailableError(message)
                               : absl::FailedPreconditionError(message),
            .may_retry = is_passing,
            .retry_after = RetryAfter(*response)};
  }
  const nlohmann::json answer =
      nlohmann::json::parse(response->body, nullptr, /*allow_exceptions=*/false);
  const std::string* const content = ContentOf(answer);
  if (content == nullptr) {
    return {.text = absl::UnavailableError(absl::StrCat(
                place, ": expected a chat completion with choices[0].message.content, found ",
                Quote(response->body))),
            .may_retry = true};
  }
  return {.text = *content};
}

}  // namespace tandem::reward
