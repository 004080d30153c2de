// Chats with images over HTTP: the prompt is that of token ids with their images, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/io/read_file.h"
#include "nlohmann/json.hpp"
#include "tests/services/rollout/service/service_fixture.h"
#include "tests/support/http_clients.h"
#include "tests/support/http_get.h"
#include "tests/support/image_site.h"
#include "tests/support/vision_chat_model.h"

namespace tandem::rollout {
namespace {

using ::nlohmann::json;
using ::tandem::testing::HttpAnswer;
using ::tandem::testing::HttpAsk;
using ::tandem::testing::HttpPost;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ChatImagesTest : public RolloutServiceTest {
 protected:
  void SetUp() override {
    path_ = testing::WriteVisionChatModel(folder_);
    openai_.listen = "127.0.0.1:0";
    setenv("TANDEM_OPENAI_TOKEN", "", 1);
    Start();
  }

  std::string FileOf(const std::string& name) const {
    return io::ReadFile(path_ + "/" + name).value();
  }
  static json Part(const std::string& url) {
    return {{"type", "image_url"}, {"image_url", {{"url", url}}}};
  }
  json Image(const std::string& name) const {
    return Part("data:image/png;base64," + absl::Base64Escape(FileOf(name)));
  }
  static json Text(const std::string& text) { return {{"type", "text"}, {"text", text}}; }

  HttpAnswer Ask(const json& content, const std::string& path = "/v1/chat/completions") {
    json body = {{"max_tokens", 8}, {"temperature", 0}, {"return_token_ids", true}};
    if (path == "/v1/completions") {
      body["prompt"] = content;
    } else {
      body["messages"] = {{{"role", "user"}, {"content", content}}};
    }
    return HttpAsk(process_->openai_server()->port(), HttpPost(path, body.dump()), 60);
  }

  const testing::TempFolder folder_;
};

TEST_F(ChatImagesTest, AChatIsThePromptOfItsExpandedIds) {
  const HttpAnswer answer = Ask({Text("a"), Image("a.png"), Text("b"), Image("c.png")});
  ASSERT_EQ(answer.code, 200) << answer.body;
  const json choice = json::parse(answer.body)["choices"][0];

  v1::GenerateRequest request = Request({3, 38}, 8);
  auto& ids = *request.mutable_token_ids()->mutable_ids();
  for (int i = 0; i < 24; ++i) ids.Add(36);
  ids.Add(39);
  ids.Add(4);
  ids.Add(38);
  // 9 x 11 pixels become 16 x 24: 2 x 3 merged patches.
  for (int i = 0; i < 6; ++i) ids.Add(36);
  ids.Add(39);
  ids.Add(31);  // "="
  for (const char* name : {"a.png", "c.png"}) request.add_images()->set_data(FileOf(name));
  request.mutable_sampling()->set_ignore_eos(false);
  std::map<int32_t, Sample> samples;
  ASSERT_OK(Generate(request, samples));
  EXPECT_EQ(choice["token_ids"].get<std::vector<uint32_t>>(), samples[0].ids);
  EXPECT_EQ(json::parse(answer.body)["usage"]["prompt_tokens"], ids.size());
}

TEST_F(ChatImagesTest, AMessageOfTextIsStillOne) {
  const HttpAnswer answer = Ask({Text("a"), Text("b")});
  ASSERT_EQ(answer.code, 200) << answer.body;
  EXPECT_EQ(json::parse(answer.body)["usage"]["prompt_tokens"], 3);
}

// The same rollout, which may fetch images; from this machine, as no flag lets it.
class FetchedChatImagesTest : public ChatImagesTest {
 protected:
  void SetUp() override {
    openai_.image_fetcher =
        std::make_shared<const images::ImageFetcher>(testing::ImageSite::OnThisMachine());
    ChatImagesTest::SetUp();
  }

  static std::string MessageOf(const HttpAnswer& answer) {
    EXPECT_EQ(answer.code, 400) << answer.body;
    return json::parse(answer.body)["error"]["message"].get<std::string>();
  }

  testing::ImageSite site_;
};

TEST_F(FetchedChatImagesTest, AUrlIsThePictureThatItLeadsTo) {
  site_.PutPicture("/a", FileOf("a.png"));
  site_.PutRedirect("/moved", "/a");
  const HttpAnswer fetched = Ask({Text("a"), Part(site_.Url("/moved"))});
  ASSERT_EQ(fetched.code, 200) << fetched.body;
  const HttpAnswer sent = Ask({Text("a"), Image("a.png")});
  EXPECT_EQ(json::parse(fetched.body)["choices"], json::parse(sent.body)["choices"]);
  EXPECT_EQ(json::parse(fetched.body)["usage"]["prompt_tokens"],
            json::parse(sent.body)["usage"]["prompt_tokens"]);
}

TEST_F(FetchedChatImagesTest, NamesTheUrlThatItRefuses) {
  site_.PutPicture("/cut", FileOf("a.png").substr(0, 150));
  EXPECT_THAT(MessageOf(Ask(json::array({Part(site_.Url("/none"))}))),
              AllOf(HasSubstr("messages[0].content[0]"), HasSubstr("/none"), HasSubstr("404")));
  EXPECT_THAT(MessageOf(Ask(json::array({Part(site_.Url("/cut"))}))),
              AllOf(HasSubstr("messages[0].content[0]"), HasSubstr("PNG")));
  // Of another host than the test allows.
  EXPECT_THAT(MessageOf(Ask(json::array({Part("http://10.0.0.1/a.png")}))),
              AllOf(HasSubstr("messages[0].content[0]"), HasSubstr("10.0.0.1")));
  // Files stay closed.
  EXPECT_THAT(MessageOf(Ask(json::array({Part("file://" + path_ + "/a.png")}))),
              HasSubstr("expected a data URL"));
}

TEST_F(FetchedChatImagesTest, BoundsTheImagesOfAChat) {
  // A picture with megabytes behind its end.
  site_.PutPicture("/large", FileOf("a.png") + std::string(size_t{9} << 20, '\0'));
  EXPECT_THAT(MessageOf(Ask({Part(site_.Url("/large")), Part(site_.Url("/large"))})),
              AllOf(HasSubstr("messages[0].content[1]"), HasSubstr("bytes of images in a chat")));
}

TEST_F(ChatImagesTest, NamesThePartThatItRefuses) {
  const auto message = [](const HttpAnswer& answer) {
    EXPECT_EQ(answer.code, 400) << answer.body;
    return json::parse(answer.body)["error"]["message"].get<std::string>();
  };
  EXPECT_THAT(message(Ask(json::array({Part("https://a.org/b.png")}))),
              AllOf(HasSubstr("messages[0].content[0]"), HasSubstr("not fetched")));
  EXPECT_THAT(message(Ask({Text("a"), Part(path_ + "/a.png")})),
              AllOf(HasSubstr("messages[0].content[1]"), HasSubstr("expected a data URL")));
  EXPECT_THAT(message(Ask(json::array({Part("data:image/png;base64,!!")}))),
              AllOf(HasSubstr("messages[0].content[0]"), HasSubstr("not base64")));
  const std::string cut = absl::Base64Escape(FileOf("a.png").substr(0, 150));
  EXPECT_THAT(message(Ask(json::array({Part("data:image/png;base64," + cut)}))),
              AllOf(HasSubstr("messages[0].content[0]"), HasSubstr("PNG")));
  EXPECT_THAT(message(Ask(json::array({Text("<|image_pad|>")}))),
              AllOf(HasSubstr("messages[0].content[0]"), HasSubstr("an image without a source")));
  EXPECT_THAT(
      message(Ask(json::array({{{"type", "input_audio"}, {"input_audio", json::object()}}}))),
      HasSubstr("input_audio"));
  EXPECT_THAT(message(Ask("a<|image_pad|>", "/v1/completions")), HasSubstr("images: token 1"));
  EXPECT_EQ(Ask(json::array({Image("a.png")})).code, 200);
}

}  // namespace
}  // namespace tandem::rollout
