// A judge over HTTP that answers, refuses, hangs, and talks nonsense.
#include "tools/tandem/reward/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "common/config/load.h"
#include "common/images/decode.h"
#include "tests/fakes/fake_judge.h"
#include "tests/support/temp_folder.h"

namespace tandem::reward {
namespace {

using ::tandem::testing::FakeJudge;
using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::DoubleEq;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

config::v1::JudgeConfig Config(const FakeJudge& server) {
  config::v1::JudgeConfig config = config::DefaultRunConfig().reward().judge();
  config.set_url(server.url());
  config.set_model("judge-7b");
  return config;
}

// Retries at once.
JudgeOptions Options(const config::v1::JudgeConfig& config,
                     absl::Duration timeout = absl::Seconds(60)) {
  absl::StatusOr<JudgeOptions> options = MakeJudgeOptions(config, "reward", timeout);
  EXPECT_OK(options.status());
  options->first_pause = absl::Milliseconds(1);
  return *std::move(options);
}

absl::StatusOr<double> ScoreOf(Judge& judge, const std::string& completion) {
  const JudgedText text = {.prompt = "What is 6 x 7?", .completion = completion, .answer = "42"};
  return judge.Score({text})[0];
}

http::Response Refusal(int code, http::Headers headers = {}) {
  return {.code = code,
          .content_type = "application/json",
          .headers = std::move(headers),
          .body = R"({"error": {"message": "not now", "type": "x"}})"};
}

TEST(Judge, AsksForAScoreAndScalesIt) {
  FakeJudge server([](const auto&) { return FakeJudge::Completion("Correct.\nScore: 8"); });
  Judge judge(Options(Config(server)));

  EXPECT_THAT(ScoreOf(judge, "It is 42."), IsOkAndHolds(DoubleEq(0.8)));

  ASSERT_EQ(server.num_requests(), 1);
  const FakeJudge::Request request = server.requests()[0];
  EXPECT_EQ(request.path, "/v1/chat/completions");
  EXPECT_EQ(request.body["model"], "judge-7b");
  EXPECT_EQ(request.body["max_tokens"], 256);
  EXPECT_EQ(request.body["temperature"], 0);
  EXPECT_THAT(request.text, AllOf(HasSubstr("What is 6 x 7?"), HasSubstr("It is 42."),
                                  HasSubstr("reference answer"), HasSubstr("42")));
  EXPECT_THAT(request.headers, Not(Contains(Pair("Authorization", ::testing::_))));
}

TEST(Judge, ShowsImagesAsPartsOfTheMessage) {
  FakeJudge server([](const auto&) { return FakeJudge::Completion("Score: 8"); });
  config::v1::JudgeConfig config = Config(server);
  config.set_template_("{prompt} {completion}");
  config.set_scale(1);
  Judge judge(Options(config));
  JudgedText text = {.prompt = "ab", .completion = "c"};
  text.prompt_images = {{.begin = 1, .end = 1, .url = [] { return std::string("data:1"); }}};
  EXPECT_THAT(judge.Score({text})[0], IsOkAndHolds(DoubleEq(8)));
  // Another picture is another request.
  text.prompt_images[0].url = [] { return std::string("data:2"); };
  EXPECT_THAT(judge.Score({text})[0], IsOkAndHolds(DoubleEq(8)));
  ASSERT_EQ(server.num_requests(), 2);
  EXPECT_EQ(server.requests()[0].body["messages"],
            nlohmann::json::parse(R"([{"role": "user", "content": [
                {"type": "text", "text": "a"},
                {"type": "image_url", "image_url": {"url": "data:1"}},
                {"type": "text", "text": "b c"}]}])"));

  text.prompt_images[0].url = []() -> absl::StatusOr<std::string> {
    return absl::NotFoundError("a.png is gone");
  };
  EXPECT_THAT(judge.Score({text})[0].status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("a.png is gone")));
  EXPECT_EQ(server.num_requests(), 2);
}

TEST(Judge, IsAskedAboutAPictureBeforeItIsToSeeSome) {
  FakeJudge server([](const FakeJudge::Request& request) {
    return request.images.empty() ? FakeJudge::Completion("Score: 8") : Refusal(400);
  });
  config::v1::JudgeConfig config = Config(server);
  EXPECT_OK(Judge(Options(config)).Check(absl::ZeroDuration(), nullptr));
  config.set_images(true);
  EXPECT_THAT(Judge(Options(config)).Check(absl::ZeroDuration(), nullptr),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("HTTP 400: not now")));
  const FakeJudge::Request request = server.requests()[1];
  ASSERT_EQ(request.images.size(), 1u);
  constexpr char kScheme[] = "data:image/png;base64,";
  ASSERT_TRUE(absl::StartsWith(request.images[0], kScheme));
  std::string png;
  ASSERT_TRUE(absl::Base64Unescape(request.images[0].substr(sizeof(kScheme) - 1), &png));
  ASSERT_OK_AND_ASSIGN(const images::Image image,
                       images::DecodeImage(png, "it", images::ImageLimits()));
  EXPECT_EQ(image.width, 32);
  EXPECT_EQ(image.height, 32);
}

TEST(Judge, SendsItsKeyAndShowsItToNobody) {
  setenv("TANDEM_TEST_JUDGE_KEY", "sk-secret", 1);
  FakeJudge server([](const auto&) { return Refusal(401); });
  config::v1::JudgeConfig config = Config(server);
  config.set_api_key_env("TANDEM_TEST_JUDGE_KEY");
  Judge judge(Options(config));
  EXPECT_THAT(ScoreOf(judge, "x").status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("HTTP 401: not now"), Not(HasSubstr("secret")))));
  EXPECT_THAT(server.requests()[0].headers, Contains(Pair("Authorization", "Bearer sk-secret")));
  EXPECT_EQ(server.num_requests(), 1);  // a refusal stays one
}

TEST(Judge, TriesAgainWhenTheJudgeIsBusyOrBroken) {
  FakeJudge server([](const FakeJudge::Request& request) {
    if (request.number == 0) return Refusal(429, {{"Retry-After", "0"}});
    if (request.number == 1) return Refusal(500);
    if (request.number == 2) return http::Response{.body = "garbage"};
    return FakeJudge::Completion("Score: 10");
  });
  Judge judge(Options(Config(server)));
  EXPECT_THAT(ScoreOf(judge, "x"), IsOkAndHolds(DoubleEq(1.0)));
  EXPECT_EQ(server.num_requests(), 4);
}

TEST(Judge, AsksAgainWhenTheJudgeSays) {
  FakeJudge server([](const FakeJudge::Request& request) {
    if (request.number < 2) return Refusal(429, {{"Retry-After", "0"}});
    return FakeJudge::Completion("Score: 1");
  });
  JudgeOptions options = Options(Config(server));
  options.first_pause = absl::Hours(1);
  Judge judge(std::move(options));
  EXPECT_OK(ScoreOf(judge, "x"));
}

TEST(JudgeCall, ReadsWhenToAskAgain) {
  for (const auto& [header, at_least, at_most] :
       {std::tuple("17", absl::Seconds(17), absl::Seconds(17)),
        std::tuple("Sun, 06 Nov 1994 08:49:37 GMT", absl::ZeroDuration(), absl::ZeroDuration()),
        std::tuple("Fri, 01 Jan 2100 00:00:00 GMT", absl::Hours(1), absl::InfiniteDuration())}) {
    FakeJudge server([header = header](const auto&) {
      return Refusal(503, {{"Retry-After", header}});
    });
    ASSERT_OK_AND_ASSIGN(const http::Url url, http::ParseUrl(server.url()));
    const JudgeAnswer answer =
        AskJudge({.url = url}, "{}", absl::Now() + absl::Seconds(60), nullptr);
    EXPECT_TRUE(answer.may_retry);
    ASSERT_TRUE(answer.retry_after.has_value()) << header;
    EXPECT_GE(*answer.retry_after, at_least);
    EXPECT_LE(*answer.retry_after, at_most);
  }
  FakeJudge server([](const auto&) { return Refusal(503, {{"Retry-After", "soon"}}); });
  ASSERT_OK_AND_ASSIGN(const http::Url url, http::ParseUrl(server.url()));
  EXPECT_FALSE(AskJudge({.url = url}, "{}", absl::Now() + absl::Seconds(60), nullptr)
                   .retry_after.has_value());
}

TEST(Judge, AFailedJudgementIsAnErrorAndNoScore) {
  FakeJudge server([](const auto&) { return Refusal(503); });
  config::v1::JudgeConfig config = Config(server);
  config.set_retries(2);
  Judge judge(Options(config));
  EXPECT_THAT(ScoreOf(judge, "x").status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("HTTP 503: not now"), HasSubstr("(try 3)"))));
  EXPECT_EQ(server.num_requests(), 3);
}

TEST(Judge, AnAnswerWithoutAScoreFails) {
  for (const char* text : {"I cannot say.", "Score: none", "Score: 11", "Score: -3", ""}) {
    FakeJudge server([text](const auto&) { return FakeJudge::Completion(text); });
    config::v1::JudgeConfig config = Config(server);
    config.set_retries(1);
    Judge judge(Options(config));
    EXPECT_THAT(ScoreOf(judge, "x").status(),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("expected a score")))
        << text;
    EXPECT_EQ(server.num_requests(), 2);
  }
}

TEST(Judge, TheDefaultScoreFollowsItsWord) {
  for (const auto& [text, score] :
       {std::pair("**Score:** 7/10", 0.7), std::pair("A score of 3? No.\n\nSCORE: 9.5", 0.95),
        std::pair("Score: 0", 0.0)}) {
    FakeJudge server([text = text](const auto&) { return FakeJudge::Completion(text); });
    Judge judge(Options(Config(server)));
    EXPECT_THAT(ScoreOf(judge, "x"), IsOkAndHolds(DoubleEq(score))) << text;
  }
}

TEST(Judge, ATemplateAndAPatternOfOnesOwn) {
  FakeJudge server([](const auto&) { return FakeJudge::Completion("[[3]] of 5 [[4]]"); });
  config::v1::JudgeConfig config = Config(server);
  config.set_template_("{completion}|{prompt}|{other}");
  config.set_pattern(R"(\[\[(\d+)\]\])");
  config.set_scale(-2);
  Judge judge(Options(config));
  EXPECT_THAT(ScoreOf(judge, "{prompt} {answer}"), IsOkAndHolds(-6));
  EXPECT_EQ(server.requests()[0].text, "{prompt} {answer}|What is 6 x 7?|{other}");

  config.clear_pattern();
  config.clear_scale();
  Judge last(Options(config));
  EXPECT_THAT(ScoreOf(last, "y"), IsOkAndHolds(4));  // the last number, as it is
}

TEST(Judge, GivesUpAHangAtItsDeadline) {
  FakeJudge* hanging = nullptr;
  FakeJudge server([&hanging](const auto&) {
    hanging->Hold();
    return FakeJudge::Completion("Score: 1");
  });
  hanging = &server;
  config::v1::JudgeConfig config = Config(server);
  config.set_retries(1);
  Judge judge(Options(config, absl::Milliseconds(50)));
  EXPECT_THAT(ScoreOf(judge, "x").status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("no complete answer")));
  EXPECT_EQ(server.num_requests(), 2);
  server.Release();
}

TEST(Judge, BytesThatAreNoTextAreReplaced) {
  FakeJudge server([](const auto&) { return FakeJudge::Completion("Score: 5"); });
  Judge judge(Options(Config(server)));
  EXPECT_OK(ScoreOf(judge, "\xff\xfe half \xc3"));
  EXPECT_THAT(server.requests()[0].text, HasSubstr("\xef\xbf\xbd half"));
}

TEST(Judge, MakesEqualRequestsOnce) {
  FakeJudge server([](const auto&) { return FakeJudge::Completion("Score: 5"); });
  Judge judge(Options(Config(server)));
  const std::vector<JudgedText> texts(20, {.prompt = "p", .completion = "c"});
  for (const absl::StatusOr<double>& reward : judge.Score(texts)) {
    EXPECT_THAT(reward, IsOkAndHolds(DoubleEq(0.5)));
  }
  EXPECT_EQ(server.num_requests(), 1);
  EXPECT_OK(judge.Score({{.prompt = "p", .completion = "other"}})[0]);
  EXPECT_EQ(server.num_requests(), 2);
}

TEST(Judge, HasAtMostSoManyRequestsUnderWay) {
  FakeJudge* held = nullptr;
  FakeJudge server([&held](const auto&) {
    held->Hold();
    return FakeJudge::Completion("Score: 5");
  });
  held = &server;
  config::v1::JudgeConfig config = Config(server);
  config.set_concurrency(3);
  Judge judge(Options(config));
  std::vector<JudgedText> texts(12);
  for (size_t i = 0; i < texts.size(); ++i) texts[i].completion = absl::StrCat(i);
  std::thread caller([&] {
    for (const auto& reward : judge.Score(texts)) EXPECT_OK(reward.status());
  });
  server.AwaitRequests(3);
  server.Release();
  caller.join();
  EXPECT_EQ(server.num_requests(), 12);
  EXPECT_EQ(server.most_at_once(), 3);
}

TEST(Judge, AnInterruptEndsTheRetries) {
  std::atomic<bool> interrupted{false};
  FakeJudge server([&interrupted](const auto&) {
    interrupted = true;
    return Refusal(503, {{"Retry-After", "3600"}});
  });
  JudgeOptions options = Options(Config(server));
  options.interrupted = [&interrupted] { return interrupted.load(); };
  Judge judge(std::move(options));
  EXPECT_THAT(ScoreOf(judge, "x").status(), StatusIs(absl::StatusCode::kCancelled, ::testing::_));
  EXPECT_EQ(server.num_requests(), 1);
}

TEST(Judge, AnInterruptEndsRequestsUnderWay) {
  FakeJudge* held = nullptr;
  FakeJudge server([&held](const auto&) {
    held->Hold();
    return FakeJudge::Completion("Score: 5");
  });
  held = &server;
  std::atomic<bool> interrupted{false};
  // Longer than the test may take.
  JudgeOptions options = Options(Config(server), absl::Hours(1));
  options.interrupted = [&interrupted] { return interrupted.load(); };
  options.concurrency = 2;
  Judge judge(std::move(options));
  std::thread user([&] {
    server.AwaitRequests(2);
    interrupted = true;
  });
  const std::vector<JudgedText> texts = {
      {.completion = "a"}, {.completion = "b"}, {.completion = "a"}, {.completion = "c"}};
  for (const absl::StatusOr<double>& reward : judge.Score(texts)) {
    EXPECT_THAT(reward.status(), StatusIs(absl::StatusCode::kCancelled, ::testing::_));
  }
  user.join();
  EXPECT_EQ(server.num_requests(), 2);

  EXPECT_THAT(judge.Check(absl::Hours(1), [&] { return server.num_requests() == 3; }),
              StatusIs(absl::StatusCode::kCancelled, ::testing::_));
}

TEST(Judge, JudgementsOutliveTheProcess) {
  const TempFolder folder;
  FakeJudge server([](const auto&) { return FakeJudge::Completion("Score: 5"); });
  config::v1::JudgeConfig config = Config(server);
  config.set_cache(folder / "judge.jsonl");
  for (int run = 0; run < 2; ++run) {
    Judge judge(Options(config));
    ASSERT_OK(judge.Check(absl::Seconds(30), nullptr));
    EXPECT_THAT(ScoreOf(judge, "x"), IsOkAndHolds(DoubleEq(0.5)));
  }
  EXPECT_EQ(server.num_requests(), 3);  // two checks, one judgement
}

TEST(Judge, ACheckFindsAJudgeThatAnswers) {
  FakeJudge server([](const FakeJudge::Request& request) {
    return request.number == 0 ? Refusal(503) : FakeJudge::Completion("no score here");
  });
  Judge judge(Options(Config(server)));
  EXPECT_OK(judge.Check(absl::Seconds(30), nullptr));
  EXPECT_EQ(server.num_requests(), 2);
}

TEST(Judge, ACheckSaysWhyThereIsNoJudge) {
  FakeJudge server([](const auto&) { return Refusal(404); });
  config::v1::JudgeConfig config = Config(server);
  Judge wrong_model(Options(config));
  EXPECT_THAT(wrong_model.Check(absl::Seconds(30), nullptr),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("HTTP 404")));
  config.set_url("http://127.0.0.1:1/v1");
  Judge nobody(Options(config));
  EXPECT_THAT(nobody.Check(absl::Milliseconds(20), nullptr),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("127.0.0.1:1")));
  EXPECT_THAT(nobody.Check(absl::Hours(1), [] { return true; }),
              StatusIs(absl::StatusCode::kCancelled, ::testing::_));
}

TEST(Judge, ErrorsOfTheConfigurationNameTheKey) {
  FakeJudge server([](const auto&) { return FakeJudge::Completion("1"); });
  const auto error_of = [&server](const auto& change) {
    config::v1::JudgeConfig config = Config(server);
    change(config);
    return std::string(
        MakeJudgeOptions(config, "reward.rewards[1]", absl::Seconds(1)).status().message());
  };
  EXPECT_THAT(error_of([](auto& c) { c.set_url("judge:80"); }),
              HasSubstr("reward.rewards[1].judge.url: expected http://"));
  EXPECT_THAT(error_of([](auto& c) { c.set_template_("{prompt}"); }),
              HasSubstr("reward.rewards[1].judge.template: expected {completion}"));
  EXPECT_THAT(error_of([](auto& c) { c.set_template_file("/none"); }),
              HasSubstr("reward.rewards[1].judge.template_file"));
  EXPECT_THAT(error_of([](auto& c) { c.set_pattern("("); }),
              HasSubstr("reward.rewards[1].judge.pattern: expected a PCRE2 pattern"));
  EXPECT_THAT(error_of([](auto& c) { c.set_pattern("\\d"); }),
              HasSubstr("reward.rewards[1].judge.pattern: expected a group"));
  EXPECT_THAT(error_of([](auto& c) { c.set_api_key_env("TANDEM_NO_SUCH_KEY"); }),
              HasSubstr("environment variable TANDEM_NO_SUCH_KEY"));
  setenv("TANDEM_TEST_BROKEN_KEY", "two\nlines", 1);
  EXPECT_THAT(error_of([](auto& c) { c.set_api_key_env("TANDEM_TEST_BROKEN_KEY"); }),
              AllOf(HasSubstr("api_key_env: expected a key"), Not(HasSubstr("two"))));
}

TEST(Judge, TheWholeAddressIsAccepted) {
  FakeJudge server([](const auto&) { return FakeJudge::Completion("Score: 1"); });
  config::v1::JudgeConfig config = Config(server);
  config.set_url(server.url() + "/chat/completions");
  Judge judge(Options(config));
  EXPECT_OK(ScoreOf(judge, "x"));
  EXPECT_EQ(server.requests()[0].path, "/v1/chat/completions");
}

}  // namespace
}  // namespace tandem::reward
