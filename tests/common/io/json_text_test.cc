#include "common/io/json_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tandem::io {
namespace {

TEST(JsonText, ReplacesBytesThatAreNotUtf8) {
  const nlohmann::json line = {{"output", "/models/\xFF"}, {"step", 3}};

  EXPECT_EQ(JsonText(line), "{\"output\":\"/models/\uFFFD\",\"step\":3}");
}

TEST(JsonText, KeepsTextAndIndents) {
  EXPECT_EQ(JsonText(nlohmann::ordered_json{{"b", "\u00E9"}, {"a", 1}}, 1),
            "{\n \"b\": \"\u00E9\",\n \"a\": 1\n}");
}

}  // namespace
}  // namespace tandem::io
