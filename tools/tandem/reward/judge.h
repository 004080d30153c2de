// Judge: scores completions with a language model behind an OpenAI-compatible URL.
//
//   ASSIGN_OR_RETURN(JudgeOptions options, MakeJudgeOptions(config, "reward", timeout));
//   Judge judge(std::move(options));
//   for (const absl::StatusOr<double>& reward : judge.Score(texts)) ...
#ifndef TANDEM_TOOLS_TANDEM_REWARD_JUDGE_H_
#define TANDEM_TOOLS_TANDEM_REWARD_JUDGE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/http/worker_pool.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/reward/judge_cache.h"
#include "tools/tandem/reward/judge_call.h"
#include "tools/tandem/reward/judge_template.h"
#include "tools/tandem/reward/pattern.h"

namespace tandem::reward {

struct JudgeOptions {
  JudgeEndpoint endpoint;
  std::string model;
  JudgeTemplate text;
  std::optional<Pattern> pattern;  // whose group 1 is the score; unset: the last number
  double largest_score = 0;        // larger scores and those below 0 are none; 0: any number is one
  double scale = 1;
  int64_t max_tokens = 256;
  double temperature = 0;
  int64_t retries = 3;
  int concurrency = 16;
  bool images = false;                         // the judge sees those of prompts and environments
  std::string images_key;                      // of the configuration, for errors
  std::string cache;                           // file; empty: memory only
  absl::Duration timeout = absl::Seconds(60);  // of a request
  absl::Duration first_pause = absl::Seconds(1);  // before the first retry; doubles with each
  std::function<bool()> interrupted;              // null: never
};

// Reads the section `key`.judge, in which unset values have their defaults, its template's file, and
// the API key from the environment. Errors name the key.
absl::StatusOr<JudgeOptions> MakeJudgeOptions(const config::v1::JudgeConfig& config,
                                              const std::string& key, absl::Duration timeout);

// The template of the section `key`.judge. Errors name the key.
absl::StatusOr<JudgeTemplate> ReadJudgeTemplate(const config::v1::JudgeConfig& config,
                                                const std::string& key);

// Thread-safe. All calls together have at most `concurrency` requests under way, on threads of the
// judge's own.
class Judge {
 public:
  explicit Judge(JudgeOptions options);

  // Asks for a judgement of a fixed text, with a picture if the judge is to see pictures, which must be
  // answered, with or without a score, and reads the cache's file. Asks again for up to `patience` while the
  // judge cannot be reached or is busy; CANCELLED soon after `interrupted`, which may be null, is true.
  absl::Status Check(absl::Duration patience, const std::function<bool()>& interrupted);

  // Returns the reward of each text, or why there is none after all retries; CANCELLED soon after
  // options.interrupted is true. Equal requests are made once, also by several callers. Bytes that are no
  // UTF-8 go out as U+FFFD. Images of the texts go out as image_url parts, and a text whose image cannot
  // be read has its error.
  std::vector<absl::StatusOr<double>> Score(absl::Span<const JudgedText> texts);

 private:
  // Holds a request's key: others with the same wait for its end.
  class Flight;

  absl::StatusOr<std::string> RequestBody(const JudgedText& text) const;
  absl::StatusOr<double> ScoreOne(const JudgedText& text);
  absl::StatusOr<double> Ask(const std::string& body, const std::string& key);
  // The reward in the judge's answer; none: it has no score.
  std::optional<double> RewardIn(const std::string& answer) const;
  void KeepInCache(const std::string& key, const std::string& answer);
  bool interrupted() const { return options_.interrupted && options_.interrupted(); }
  // False if interrupted.
  bool Pause(absl::Duration duration) const;

  const JudgeOptions options_;
  JudgeCache cache_;
  absl::Mutex mu_;
  bool is_loaded_ ABSL_GUARDED_BY(mu_) = false;
  bool has_warned_ ABSL_GUARDED_BY(mu_) = false;
  std::set<std::string> in_flight_ ABSL_GUARDED_BY(mu_);
  http::WorkerPool pool_;  // last: its threads use the rest
};

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_JUDGE_H_
