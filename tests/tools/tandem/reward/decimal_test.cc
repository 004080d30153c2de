#include "tools/tandem/reward/decimal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tandem::reward {
namespace {

using ::testing::Eq;
using ::testing::Optional;

struct Case {
  std::string text;
  std::string number;
};

class LastNumberOf : public ::testing::TestWithParam<Case> {};

TEST_P(LastNumberOf, IsItsNormalForm) {
  EXPECT_THAT(LastNumber(GetParam().text), Optional(Eq(GetParam().number))) << GetParam().text;
}

INSTANTIATE_TEST_SUITE_P(Forms, LastNumberOf,
                         ::testing::ValuesIn<Case>({
                             {"18", "18"},
                             {"first 3, then 18", "18"},
                             {"3.0", "3"},
                             {"3.50", "3.5"},
                             {"003", "3"},
                             {".5", "0.5"},
                             {"0.50", "0.5"},
                             {"5.", "5"},
                             {"It is 5.\n", "5"},
                             {"0.0", "0"},
                             {"-0", "0"},
                             {"+7", "7"},
                             {"123456789012345678901234567890", "123456789012345678901234567890"},
                             {"0.1000000000000000055511151231257827",
                              "0.1000000000000000055511151231257827"},
                         }));

INSTANTIATE_TEST_SUITE_P(Thousands, LastNumberOf,
                         ::testing::ValuesIn<Case>({
                             {"1,000", "1000"},
                             {"1,450,000", "1450000"},
                             {"1,000.50", "1000.5"},
                             {"1,000, then", "1000"},
                             {"1{,}000", "1000"},
                             {"\\$1{,}000", "1000"},
                             {"1\\,000", "1000"},
                             {"1,\\!000", "1000"},
                             {"1\xE2\x80\xAF"
                              "000",
                              "1000"},
                             {"3,4,5", "5"},
                             {"1, 2, 300", "300"},
                             {"1,0000", "0"},
                             {"1234,567", "567"},
                         }));

INSTANTIATE_TEST_SUITE_P(Signs, LastNumberOf,
                         ::testing::ValuesIn<Case>({
                             {"-5", "-5"},
                             {"= -5", "-5"},
                             {"(-5)", "-5"},
                             {"-$5", "-5"},
                             {"$-5", "-5"},
                             {"-\\$5", "-5"},
                             {"\xE2\x88\x92"
                              "5",
                              "-5"},
                             {"-.5", "-0.5"},
                             {"16-3", "3"},
                             {"x-3", "3"},
                             {"(a+b)-3", "3"},
                             {"10 - 5", "5"},
                             {"18-year-old", "18"},
                             {"**-5**", "-5"},
                         }));

INSTANTIATE_TEST_SUITE_P(Units, LastNumberOf,
                         ::testing::ValuesIn<Case>({
                             {"$18", "18"},
                             {"\xE2\x82\xAC"
                              "18",
                              "18"},
                             {"18 dollars.", "18"},
                             {"18%", "18"},
                             {"18\\%", "18"},
                             {"18kg", "18"},
                             {"**18**", "18"},
                             {"<<9*2=18>>", "18"},
                             {"1.5e3", "1500"},
                             {"2E-2", "0.02"},
                             {"12e-4", "0.0012"},
                             {"1.25e1", "12.5"},
                             {"5 eggs", "5"},
                             {"5e", "5"},
                             {"1e9999999999", "9999999999"},
                         }));

TEST(LastNumber, IsNoneWhereThereAreNoDigits) {
  EXPECT_EQ(LastNumber(""), std::nullopt);
  EXPECT_EQ(LastNumber("no idea..., -"), std::nullopt);
}

TEST(LastNumber, TakesLinearTimeOnManyDigitsAndGroups) {
  std::string text(4 << 20, '7');
  EXPECT_EQ(LastNumber(text)->size(), text.size());
  std::string groups = "1";
  for (int i = 0; i < 300'000; ++i) groups += ",000";
  EXPECT_EQ(LastNumber(groups)->size(), 900'001u);
}

}  // namespace
}  // namespace tandem::reward
