#include "common/images/chat/chat_images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace tandem::images {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::string_view kPlaceholder = "<pad>";

absl::StatusOr<std::vector<ChatImage>> Find(const std::string& messages,
                                            const std::string& listed = "null") {
  const auto list = nlohmann::ordered_json::parse(listed);
  return FindChatImages(nlohmann::ordered_json::parse(messages), list.is_null() ? nullptr : &list,
                        kPlaceholder);
}

// "source at place" of each image.
std::vector<std::string> Summary(const absl::StatusOr<std::vector<ChatImage>>& images) {
  std::vector<std::string> out;
  if (!images.ok()) return {images.status().ToString()};
  for (const ChatImage& image : *images) out.push_back(image.source + " at " + image.place);
  return out;
}

auto Refuses(const std::string& text) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
}

TEST(FindChatImages, FindsPartsInOrder) {
  EXPECT_THAT(Summary(Find(R"([{"role": "system", "content": "x"},
      {"role": "user", "content": [{"type": "image", "image": "a.png"}, {"type": "text", "text": "and"},
                                   {"type": "image_url", "image_url": {"url": "data:,b"}}]},
      {"role": "assistant", "content": null},
      {"role": "user", "content": [{"type": "image", "image": "a.png"}]}])")),
              ElementsAre("a.png at messages[1].content[0]", "data:,b at messages[1].content[2]",
                          "a.png at messages[3].content[0]"));
}

TEST(FindChatImages, ReadsTheKeysOfTransformersAndOpenAi) {
  EXPECT_THAT(
      Summary(Find(
          R"([{"content": [{"type": "image", "path": "a.png"}, {"type": "image", "url": "b.png"},
      {"type": "image", "base64": "aGk="}, {"type": "image_url", "image_url": "c.png"}]}])")),
      ElementsAre("a.png at messages[0].content[0]", "b.png at messages[0].content[1]",
                  "data:;base64,aGk= at messages[0].content[2]",
                  "c.png at messages[0].content[3]"));
}

TEST(FindChatImages, TakesSourcesFromTheRow) {
  EXPECT_THAT(
      Summary(Find(R"([{"content": [{"type": "image"}, {"type": "image", "image": "b.png"}]}])",
                   R"(["a.png", "b.png"])")),
      ElementsAre("a.png at messages[0].content[0]", "b.png at messages[0].content[1]"));
  EXPECT_THAT(
      Summary(Find(R"([{"content": "first <pad>, second <pad>"}])", R"(["a.png", "b.png"])")),
      ElementsAre("a.png at messages[0].content", "b.png at messages[0].content"));
  EXPECT_THAT(Summary(Find(R"([{"content": "none"}])", "[]")), ElementsAre());
}

TEST(FindChatImages, NamesTheImageThatHasNoPart) {
  EXPECT_THAT(Find(R"([{"content": [{"type": "image"}]}])", R"(["a.png", "b.png"])"),
              Refuses("images[1]: has no part in messages, which have 1 image"));
}

TEST(FindChatImages, NamesThePartThatHasNoImage) {
  EXPECT_THAT(Find(R"([{"content": [{"type": "text", "text": "x"}, {"type": "image"}]}])"),
              Refuses("messages[0].content[1]: an image without a source"));
  EXPECT_THAT(Find(R"([{"content": [{"type": "text", "text": "see <pad>"}]}])"),
              Refuses("messages[0].content[0]: an image without a source"));
  EXPECT_THAT(
      Find(R"([{"content": [{"type": "image", "image": "a"}, {"type": "image", "image": "b"}]}])",
           R"(["a"])"),
      Refuses("messages[0].content[1]: is image 2 of the chat, but the row's images are 1"));
}

TEST(FindChatImages, RefusesWhatContradictsOrIsNoImage) {
  EXPECT_THAT(Find(R"([{"content": [{"type": "image", "image": "a"}]}])", R"(["b"])"),
              Refuses("messages[0].content[0]: names another image than images[0]"));
  EXPECT_THAT(Find(R"([{"content": [{"type": "video", "video": "a"}]}])"),
              Refuses("messages[0].content[0]: a part of type video"));
  EXPECT_THAT(Find(R"([{"content": [{"type": "image", "image": 3}]}])"),
              Refuses("messages[0].content[0].image: expected a path or URL"));
  EXPECT_THAT(Find(R"([{"content": "x"}])", "3"), Refuses("images: expected a list"));
  EXPECT_THAT(Find(R"([{"content": "x"}])", "[3]"), Refuses("images[0]: expected a path or URL"));
}

TEST(ExpandPlaceholders, RepeatsEachByItsImagesCount) {
  const std::vector<ChatImage> images = {{"a", "first"}, {"b", "second"}};
  EXPECT_THAT(ExpandPlaceholders({1, 7, 2, 7}, {.placeholder = 7}, images, {{1, 3}, {1, 1}}),
              IsOkAndHolds(ElementsAre(1, 7, 7, 7, 2, 7)));
  EXPECT_THAT(ExpandPlaceholders({1, 2}, {.placeholder = 7}, {}, {}),
              IsOkAndHolds(ElementsAre(1, 2)));
}

TEST(ExpandPlaceholders, RefusesAnotherNumberOfPlaceholders) {
  const std::vector<ChatImage> images = {{"a", "first"}, {"b", "second"}};
  EXPECT_THAT(
      ExpandPlaceholders({7, 2}, {.placeholder = 7}, images, {{1, 1}, {1, 1}}),
      Refuses("second: the chat template wrote no placeholder for this image: 1 for 2 images"));
  EXPECT_THAT(ExpandPlaceholders({7, 7, 7}, {.placeholder = 7}, images, {{1, 1}, {1, 1}}),
              Refuses("messages: the chat template wrote 3 placeholders for 2 images"));
}

}  // namespace
}  // namespace tandem::images
