#include "tools/tandem/reward/judge.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/time/clock.h"
#include "common/io/json_text.h"
#include "common/rewards/reward_range.h"
#include "common/status/exceptions.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "tools/tandem/reward/decimal.h"

namespace tandem::reward {
namespace {

// A judge that asks for more is waited for this long, then asked again.
constexpr absl::Duration kLongestPause = absl::Minutes(1);
constexpr absl::Duration kPausePoll = absl::Milliseconds(100);
constexpr size_t kShownAnswer = 200;

// The picture of Check(): 32 x 32 white pixels.
constexpr char kCheckPicture[] =
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAAAAABWESUoAAAAFklEQVR42mP4TwAwjCoYVTCqYKQqAAA/"
    "aPwuqUTQyAAAAABJRU5ErkJggg==";

// The content of a message: a text, or parts of which some are images.
absl::StatusOr<nlohmann::json> ContentOf(const std::vector<JudgePart>& parts) {
  if (parts.size() == 1 && parts[0].image == nullptr) return parts[0].text;
  nlohmann::json content = nlohmann::json::array();
  for (const JudgePart& part : parts) {
    if (part.image == nullptr) {
      content.push_back({{"type", "text"}, {"text", part.text}});
      continue;
    }
    ASSIGN_OR_RETURN(std::string url, part.image->url());
    content.push_back({{"type", "image_url"}, {"image_url", {{"url", std::move(url)}}}});
  }
  return content;
}

}  // namespace

class Judge::Flight {
 public:
  Flight(Judge& judge, const std::string& key) : judge_(judge), key_(key) {
    absl::MutexLock lock(&judge_.mu_);
    const auto is_free = [this] {
      judge_.mu_.AssertHeld();
      return !judge_.in_flight_.contains(key_);
    };
    // The request that holds it has a deadline.
    judge_.mu_.Await(absl::Condition(&is_free));
    judge_.in_flight_.insert(key_);
  }
  ~Flight() {
    absl::MutexLock lock(&judge_.mu_);
    judge_.in_flight_.erase(key_);
  }
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

 private:
  Judge& judge_;
  const std::string& key_;
};

Judge::Judge(JudgeOptions options)
    : options_(std::move(options)), cache_(options_.cache), pool_(options_.concurrency) {}

absl::StatusOr<std::string> Judge::RequestBody(const JudgedText& text) const {
  ASSIGN_OR_RETURN(nlohmann::json content, ContentOf(options_.text.Fill(text)));
  const nlohmann::json body = {{"model", options_.model},
                               {"messages", {{{"role", "user"}, {"content", std::move(content)}}}},
                               {"max_tokens", options_.max_tokens},
                               {"temperature", options_.temperature}};
  return io::JsonText(body);
}

absl::Status Judge::Check(absl::Duration patience, const std::function<bool()>& interrupted) {
  {
    absl::MutexLock lock(&mu_);
    if (!is_loaded_) {
      RETURN_IF_ERROR(cache_.Load());
    }
    is_loaded_ = true;
  }
  JudgedText text = {.prompt = "What is 1 + 1?", .completion = "2", .answer = "2"};
  if (options_.images) {
    // Behind the completion, which every template shows.
    text.completion_images = {
        {.begin = 1, .end = 1, .url = [] { return std::string(kCheckPicture); }}};
  }
  ASSIGN_OR_RETURN(const std::string body, RequestBody(text));
  const absl::Time until = absl::Now() + patience;
  while (true) {
    if (interrupted && interrupted()) return absl::CancelledError("interrupted");
    const JudgeAnswer answer =
        AskJudge(options_.endpoint, body, absl::Now() + options_.timeout, interrupted);
    if (answer.text.ok()) return absl::OkStatus();
    const absl::Duration pause =
        std::min(answer.retry_after.value_or(options_.first_pause), kLongestPause);
    if (!answer.may_retry || absl::Now() + pause >= until) return answer.text.status();
    for (const absl::Time end = absl::Now() + pause; absl::Now() < end;) {
      if (interrupted && interrupted()) return absl::CancelledError("interrupted");
      absl::SleepFor(std::min<absl::Duration>(kPausePoll, end - absl::Now()));
    }
  }
}

std::vector<absl::StatusOr<double>> Judge::Score(absl::Span<const JudgedText> texts) {
  std::vector<absl::StatusOr<double>> rewards(texts.size(),
                                              absl::UnavailableError("no thread to ask a judge"));
  absl::BlockingCounter left(static_cast<int>(texts.size()));
  for (size_t i = 0; i < texts.size(); ++i) {
    const bool is_taken = pool_.Submit([&, i] {
      const absl::Status status = Catch([&] {
        rewards[i] = ScoreOne(texts[i]);
        return absl::OkStatus();
      });
      if (!status.ok()) rewards[i] = status;
      left.DecrementCount();
    });
    if (!is_taken) left.DecrementCount();
  }
  left.Wait();  // each request has a deadline
  return rewards;
}

absl::StatusOr<double> Judge::ScoreOne(const JudgedText& text) {
  if (interrupted()) return absl::CancelledError("interrupted");
  ASSIGN_OR_RETURN(const std::string body, RequestBody(text));
  const std::string key =
      JudgeCache::KeyOf(absl::StrCat(options_.endpoint.url.ToString(), "\n", body));
  const Flight flight(*this, key);
  if (const std::optional<std::string> known = cache_.Find(key); known.has_value()) {
    // It may have none if the pattern has changed.
    if (const std::optional<double> reward = RewardIn(*known); reward.has_value()) return *reward;
  }
  return Ask(body, key);
}

absl::StatusOr<double> Judge::Ask(const std::string& body, const std::string& key) {
  absl::Duration pause = options_.first_pause;
  for (int64_t left = options_.retries;; --left) {
    if (interrupted()) return absl::CancelledError("interrupted");
    JudgeAnswer answer =
        AskJudge(options_.endpoint, body, absl::Now() + options_.timeout, options_.interrupted);
    if (answer.text.ok()) {
      if (const std::optional<double> reward = RewardIn(*answer.text); reward.has_value()) {
        KeepInCache(key, *answer.text);
        return *reward;
      }
      const std::string& text = *answer.text;
      answer = {.text = absl::UnavailableError(absl::StrCat(
                    "expected a score in the answer of the judge at ",
                    options_.endpoint.url.ToString(), ", found \"",
                    absl::Utf8SafeCHexEscape(
                        text.substr(text.size() - std::min(text.size(), kShownAnswer))),
                    "\"")),
                .may_retry = true};
    }
    if (!answer.may_retry) return answer.text.status();
    if (left == 0) {
      return absl::Status(
          answer.text.status().code(),
          absl::StrCat(answer.text.status().message(), " (try ", options_.retries + 1, ")"));
    }
    if (!Pause(std::min(answer.retry_after.value_or(pause), kLongestPause))) {
      return absl::CancelledError("interrupted");
    }
    pause = std::min(2 * pause, kLongestPause);
  }
}

std::optional<double> Judge::RewardIn(const std::string& answer) const {
  std::string text = answer;
  if (options_.pattern.has_value()) {
    const absl::StatusOr<Pattern::Match> match = options_.pattern->Search(answer);
    if (!match.ok() || !match->is_found) return std::nullopt;
    text = match->group;
  }
  const std::optional<Decimal> number = LastNumber(text);
  double score = 0;
  if (!number.has_value() || !absl::SimpleAtod(*number, &score)) return std::nullopt;
  if (options_.largest_score > 0 && (score < 0 || score > options_.largest_score)) {
    return std::nullopt;
  }
  const double reward = score * options_.scale;
  if (!rewards::IsReward(reward)) return std::nullopt;
  return reward;
}

void Judge::KeepInCache(const std::string& key, const std::string& answer) {
  const absl::Status kept = cache_.Add(key, answer);
  if (kept.ok()) return;
  absl::MutexLock lock(&mu_);
  if (std::exchange(has_warned_, true)) return;
  telemetry::LogError("judgements cannot be kept for later runs", {{"error", kept.ToString()}});
}

bool Judge::Pause(absl::Duration duration) const {
  const absl::Time end = absl::Now() + duration;
  while (true) {
    if (interrupted()) return false;
    const absl::Duration left = end - absl::Now();
    if (left <= absl::ZeroDuration()) return true;
    absl::SleepFor(std::min(left, kPausePoll));
  }
}

}  // namespace tandem::reward
