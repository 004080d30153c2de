#include "common/telemetry/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/telemetry/phase_timer.h"

namespace tandem::telemetry {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::SizeIs;

std::vector<std::string>& Lines() {
  static auto* lines = new std::vector<std::string>;
  return *lines;
}

class LogTest : public ::testing::Test {
 protected:
  LogTest() {
    Lines().clear();
    SetLogLevel(LogLevel::kInfo);
    SetLogContext({});
    SetLogSink([](absl::string_view line) { Lines().emplace_back(line); });
  }
  ~LogTest() override { SetLogSink(nullptr); }
};

TEST_F(LogTest, ALineIsTimeLevelSentenceAndFields) {
  LogInfo("weights committed", {{"seconds", 0.25}, {"bytes", 7}, {"ok", true}, {"phase", "wire"}});
  ASSERT_THAT(Lines(), SizeIs(1));
  EXPECT_THAT(Lines()[0],
              MatchesRegex("....-..-..T..:..:..\\....Z INFO weights committed seconds=0.25 bytes=7 "
                           "ok=true phase=wire\n"));
}

TEST_F(LogTest, TextWithSpacesIsQuotedAndALineStaysOneLine) {
  LogWarning("two\nlines",
             {{"message", "a \"b\"\nc=\\"}, {"empty", ""}, {"plain", std::string("x/y")}});
  ASSERT_THAT(Lines(), SizeIs(1));
  EXPECT_THAT(
      Lines()[0],
      EndsWith("WARNING two lines message=\"a \\\"b\\\"\\nc=\\\\\" empty=\"\" plain=x/y\n"));
}

TEST_F(LogTest, LinesCarryTheContextOfTheProcess) {
  SetLogContext({.run = "digits 1", .role = "trainer", .rank = 0});
  LogError("stopped", {{"step", int64_t{1} << 40}});
  EXPECT_THAT(Lines()[0],
              EndsWith("ERROR stopped run=\"digits 1\" role=trainer rank=0 step=1099511627776\n"));
}

TEST_F(LogTest, LevelsBelowTheThresholdAreDropped) {
  LogDebug("unseen");
  SetLogLevel(LogLevel::kError);
  LogWarning("unseen");
  EXPECT_THAT(Lines(), IsEmpty());
  SetLogLevel(LogLevel::kDebug);
  LogDebug("seen");
  EXPECT_THAT(Lines(), SizeIs(1));
}

TEST_F(LogTest, ThePolicyVersionIsCarriedFromThenOn) {
  SetLogPolicyVersion(3);
  LogInfo("step done", {{"loss", -0.5}});
  EXPECT_THAT(Lines()[0], EndsWith("INFO step done policy_version=3 loss=-0.5\n"));
}

TEST_F(LogTest, WhatPeersSaySteersNoTerminal) {
  LogWarning("peer \x1b[2J said",
             {{"message", "\x1b]0;x\x07"}, {"name", "\xc2\x9b"}, {"raw", "\xff"}});
  EXPECT_THAT(Lines()[0], AllOf(HasSubstr("WARNING peer \\u001b[2J said "),
                                EndsWith(" message=\"\\u001b]0;x\\u0007\" "
                                         "name=\"\\u009b\" raw=\"\\xff\"\n")));
}

TEST(FieldValue, WritesJson) {
  EXPECT_EQ(FieldValue(0.1).ToJson(), "0.1");
  EXPECT_EQ(FieldValue(std::nan("")).ToJson(), "\"nan\"");
  EXPECT_EQ(FieldValue("a\"b\x01").ToJson(), "\"a\\\"b\\u0001\"");
  EXPECT_EQ(FieldValue("\xff").ToJson(), "\"\\ufffd\"");  // JSON is UTF-8
  EXPECT_EQ(FieldValue(uint64_t{18446744073709551615u}).ToJson(), "18446744073709551615");
}

TEST(PhaseTimer, AddsUpEachPhaseAndBeginsAnew) {
  PhaseTimer timer;
  timer.Add("wire", 1.5);
  timer.Add("wire", 0.5);
  { auto phase = timer.Measure("pack"); }
  auto seconds = timer.TakeSeconds();
  EXPECT_EQ(seconds["wire"], 2.0);
  EXPECT_GE(seconds["pack"], 0.0);
  EXPECT_THAT(seconds, SizeIs(2));
  EXPECT_THAT(timer.Seconds(), IsEmpty());
}

}  // namespace
}  // namespace tandem::telemetry
