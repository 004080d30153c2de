// What the checks make of what their programs print.
#include "tools/tandem/gpu_check/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace tandem::gpu_check {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

nlohmann::json Begins(int64_t k, const std::string& name) {
  return {{"comparison", k}, {"of", 3}, {"begins", name}};
}
nlohmann::json Ended(int64_t k, const std::string& name, bool passed = true) {
  return {{"comparison", k},     {"of", 3},         {"name", name},
          {"passed", passed},    {"ours", true},    {"greatest_difference", 0.5},
          {"worst", "300 rows"}, {"tolerance", 0.1}};
}

// Runs comparisons with a program that prints the next of `outputs`; notes from where each began.
struct Programs {
  std::vector<ChildOutput> outputs;
  std::vector<int64_t> begun_at;

  CheckResult Compare() {
    return CompareKernels([this](int64_t first) {
      begun_at.push_back(first);
      return outputs[begun_at.size() - 1];
    });
  }
};

TEST(CompareKernels, PassesIfAllAgree) {
  Programs programs{{{absl::OkStatus(),
                      {Begins(0, "a"), Ended(0, "a"), Begins(1, "b"), Ended(1, "b"), Begins(2, "c"),
                       Ended(2, "c")}}},
                    {}};
  const CheckResult result = programs.Compare();

  EXPECT_EQ(result.outcome, Outcome::kPassed) << result.reason;
  EXPECT_EQ(result.summary, "3 of 3 kinds agree");
  EXPECT_EQ(result.measured["comparisons"].size(), 3);
}

TEST(CompareKernels, OneThatDiffersIsNamedWithItsCase) {
  Programs programs{{{absl::OkStatus(),
                      {Begins(0, "a"), Ended(0, "a"), Begins(1, "b"), Ended(1, "b", false),
                       Begins(2, "c"), Ended(2, "c")}}},
                    {}};
  const CheckResult result = programs.Compare();

  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_EQ(result.reason, "b: differs by 0.5 in 300 rows");
}

TEST(CompareKernels, GoesOnBehindTheOneThatCrashed) {
  Programs programs{{{absl::UnavailableError("killed by SIGSEGV"),
                      {Begins(0, "a"), Ended(0, "a"), Begins(1, "b")}},
                     {absl::OkStatus(), {Begins(2, "c"), Ended(2, "c")}}},
                    {}};
  const CheckResult result = programs.Compare();

  EXPECT_THAT(programs.begun_at, ElementsAre(0, 2));
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_THAT(result.reason, AllOf(HasSubstr("b: "), HasSubstr("SIGSEGV")));
  EXPECT_EQ(result.measured["comparisons"].size(), 3);
  EXPECT_EQ(result.summary, "2 of 3 kinds agree");
}

TEST(CompareKernels, TheLastMayCrashToo) {
  Programs programs{
      {{absl::UnavailableError("killed"),
        {Begins(0, "a"), Ended(0, "a"), Begins(1, "b"), Ended(1, "b"), Begins(2, "c")}}},
      {}};
  EXPECT_THAT(programs.Compare().reason, HasSubstr("c: killed"));
  EXPECT_THAT(programs.begun_at, ElementsAre(0));
}

TEST(CompareKernels, AProgramThatDoesNotStartIsAFailure) {
  Programs programs{{{absl::UnavailableError("no library"), {}}}, {}};
  const CheckResult result = programs.Compare();

  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_EQ(result.reason, "no library");
}

TEST(CompareKernels, OneThatEndsEarlyWithoutAnErrorIsAFailure) {
  Programs programs{{{absl::OkStatus(), {Begins(0, "a"), Ended(0, "a")}}}, {}};
  EXPECT_THAT(programs.Compare().reason, HasSubstr("ended early"));
  Programs silent{{{absl::OkStatus(), {}}}, {}};
  EXPECT_EQ(silent.Compare().outcome, Outcome::kFailed);
}

TEST(CompareKernels, TheTimeLimitIsNoReasonToStartAgain) {
  Programs programs{{{absl::DeadlineExceededError("too slow"), {Begins(0, "a")}}}, {}};
  const CheckResult result = programs.Compare();

  EXPECT_THAT(programs.begun_at, ElementsAre(0));
  EXPECT_THAT(result.reason, HasSubstr("too slow"));
}

TEST(CompareKernels, AtenInPlaceOfAKernelFellBack) {
  nlohmann::json other = Ended(0, "a", false);
  other["of"] = 1;
  other["ours"] = false;
  Programs programs{{{absl::OkStatus(), {other}}}, {}};
  const CheckResult result = programs.Compare();

  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_THAT(result.fell_back, ElementsAre(HasSubstr("a: ATen computed it")));
}

TEST(DifferenceOf, IsTheGreatestAndTheMean) {
  ASSERT_OK_AND_ASSIGN(
      const Difference difference,
      DifferenceOf({nlohmann::json::parse(R"({"trainer": [-1, -2], "rollout": [-1, -2.5]})"),
                    nlohmann::json::parse(R"({"trainer": [-3, -4], "rollout": [-2, -4]})")}));

  EXPECT_EQ(difference.tokens, 4);
  EXPECT_DOUBLE_EQ(difference.greatest, 1);
  EXPECT_DOUBLE_EQ(difference.mean, 0.375);
}

TEST(DifferenceOf, RefusesWhatCannotBeCompared) {
  const auto of = [](const char* line) { return DifferenceOf({nlohmann::json::parse(line)}); };
  EXPECT_THAT(of(R"({"trainer": [-1], "rollout": []})"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1 of the trainer and 0")));
  // What is not finite is null in JSON.
  EXPECT_THAT(of(R"({"trainer": [-1], "rollout": [null]})"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("finite")));
  EXPECT_THAT(DifferenceOf({}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no log")));
}

nlohmann::json Completion(std::vector<int64_t> ids) { return {{"ids", std::move(ids)}}; }

TEST(SameTokens, CountsUpToTheFirstDifference) {
  const std::vector<nlohmann::json> a = {Completion({1, 2, 3, 4}), Completion({5, 6})};
  const std::vector<nlohmann::json> b = {Completion({1, 9, 3, 4}), Completion({5, 6})};

  ASSERT_OK_AND_ASSIGN(const double all, SameTokens(a, a));
  ASSERT_OK_AND_ASSIGN(const double some, SameTokens(a, b));
  EXPECT_EQ(all, 1);
  EXPECT_EQ(some, 0.75);  // 1, 5 and 6; not 2
}

TEST(SameTokens, RefusesWhatCannotBeCompared) {
  EXPECT_FALSE(SameTokens({}, {}).ok());
  EXPECT_FALSE(SameTokens({Completion({1})}, {}).ok());
  EXPECT_FALSE(SameTokens({Completion({1})}, {Completion({1, 2})}).ok());
  EXPECT_FALSE(SameTokens({Completion({})}, {Completion({})}).ok());
}

TEST(CheckLostRank, IsSkippedWithASingleGpu) {
  Machine machine;
  machine.facts.gpus.resize(1);
  const CheckResult result = CheckLostRank({}, machine, absl::InfiniteFuture());

  EXPECT_EQ(result.outcome, Outcome::kSkipped);
  EXPECT_THAT(result.reason, HasSubstr("two GPUs"));
}

std::vector<std::string> NamesOf(const CheckSelection& selection) {
  const Tools tools;
  Machine machine;
  std::vector<std::string> names;
  for (const Check& check : AllChecks(tools, machine, selection)) names.push_back(check.name);
  return names;
}

TEST(AllChecks, MeasuresTheRatesBeforeWhatIsHeldAgainstThem) {
  EXPECT_THAT(NamesOf({}), ElementsAre("facts", "kernels", "log_probs", "sampling", "rates",
                                       "training", "decoding", "updates", "lost_rank"));
}

TEST(AllChecks, TakesTheSanitizerOnlyIfAskedAndChosenOnesAlone) {
  EXPECT_EQ(NamesOf({.full = true, .only = {}}).back(), "sanitizer");
  EXPECT_THAT(NamesOf({.full = false, .only = {"training", "sanitizer"}}),
              ElementsAre("facts", "training", "sanitizer"));
}

}  // namespace
}  // namespace tandem::gpu_check
