// Chats with images over HTTP: the prompt is that of token ids with their images, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/images/image_digest.h"
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
  void SetUp() override { StartModel("qwen2-vl"); }

  void StartModel(const std::string& name) {
    path_ = testing::WriteVisionChatModel(folder_, name);
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

// Models, and the rows that they make of two images.
struct ChatModel {
  const char* name;
  int rows_of_a;
  int rows_of_c;
  int ends_of_line = 0;  // tokens on each side of an image, <unk> to the tokenizer
};

class ChatModelsTest : public ChatImagesTest, public ::testing::WithParamInterface<ChatModel> {
 protected:
  void SetUp() override { StartModel(GetParam().name); }
};

TEST_P(ChatModelsTest, AChatIsThePromptOfItsExpandedIds) {
  const HttpAnswer answer = Ask({Text("a"), Image("a.png"), Text("b"), Image("c.png")});
  ASSERT_EQ(answer.code, 200) << answer.body;
  const json choice = json::parse(answer.body)["choices"][0];

  v1::GenerateRequest request = Request({3}, 8);
  auto& ids = *request.mutable_token_ids()->mutable_ids();
  const auto add_image = [&](int rows) {
    for (int i = 0; i < GetParam().ends_of_line; ++i) ids.Add(40);
    ids.Add(38);
    for (int i = 0; i < rows; ++i) ids.Add(36);
    ids.Add(39);
    for (int i = 0; i < GetParam().ends_of_line; ++i) ids.Add(40);
  };
  add_image(GetParam().rows_of_a);
  ids.Add(4);
  add_image(GetParam().rows_of_c);
  ids.Add(31);  // "="
  for (const char* name : {"a.png", "c.png"}) request.add_images()->set_data(FileOf(name));
  request.mutable_sampling()->set_ignore_eos(false);
  std::map<int32_t, Sample> samples;
  ASSERT_OK(Generate(request, samples));
  EXPECT_EQ(choice["token_ids"].get<std::vector<uint32_t>>(), samples[0].ids);
  EXPECT_EQ(json::parse(answer.body)["usage"]["prompt_tokens"], ids.size());
}

// c.png, of 9 x 11 pixels, becomes 16 x 24 in Qwen2-VL: 2 x 3 merged patches.
INSTANTIATE_TEST_SUITE_P(Models, ChatModelsTest,
                         ::testing::Values(ChatModel{"qwen2-vl", 24, 6}, ChatModel{"llava", 16, 16},
                                           ChatModel{"internvl", 28, 4},
                                           ChatModel{"gemma3", 4, 4, 1},
                                           ChatModel{"llava-onevision", 17, 17}),
                         [](const auto& info) {
                           return testing::VisionGoldenName(info.param.name);
                         });

// Lines of placeholders with text between them.
class ChatImageLinesTest : public ChatImagesTest {
 protected:
  void SetUp() override { StartModel("mistral3"); }
};

TEST_F(ChatImageLinesTest, AChatIsThePromptOfItsExpandedIds) {
  const HttpAnswer answer = Ask({Text("a"), Image("c.png"), Image("b.png"), Text("b")});
  ASSERT_EQ(answer.code, 200) << answer.body;
  const json choice = json::parse(answer.body)["choices"][0];

  v1::GenerateRequest request = Request({3}, 8);
  auto& ids = *request.mutable_token_ids()->mutable_ids();
  // 9 x 11 pixels become 16 x 16, and 23 x 30 become 24 x 32.
  for (const auto& [rows, columns] : {std::pair(2, 2), std::pair(3, 4)}) {
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < columns; ++i) ids.Add(36);
      ids.Add(row + 1 < rows ? 37 : 38);
    }
  }
  ids.Add(4);
  ids.Add(31);  // "="
  for (const char* name : {"c.png", "b.png"}) request.add_images()->set_data(FileOf(name));
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

TEST_F(FetchedChatImagesTest, FetchesTheUrlsOfAChatTogether) {
  json fetched, sent;
  for (const char* name : {"a.png", "b.png", "c.png"}) {
    site_.PutPicture(absl::StrCat("/", name), FileOf(name));
    fetched.push_back(Part(site_.Url(absl::StrCat("/", name))));
    sent.push_back(Image(name));
  }
  site_.AnswerTogether(3);
  const HttpAnswer answer = Ask(fetched);
  ASSERT_EQ(answer.code, 200) << answer.body;
  EXPECT_EQ(json::parse(answer.body)["choices"], json::parse(Ask(sent).body)["choices"]);
  EXPECT_EQ(site_.num_requests(), 3);
}

TEST_F(FetchedChatImagesTest, NamesTheFirstPartThatFailsWhicheverEndsFirst) {
  site_.PutPicture("/a", FileOf("a.png"));
  site_.AnswerTogether(4);
  // The last has failed before anything is fetched.
  EXPECT_THAT(
      MessageOf(Ask({Part(site_.Url("/a")), Part(site_.Url("/first")), Part(site_.Url("/a")),
                     Part(site_.Url("/second")), Part("data:image/png;base64,!!")})),
      AllOf(HasSubstr("messages[0].content[1]"), HasSubstr("/first")));
}

TEST_F(FetchedChatImagesTest, BoundsTheImagesOfAChat) {
  // A picture with megabytes behind its end.
  site_.PutPicture("/large", FileOf("a.png") + std::string(size_t{9} << 20, '\0'));
  EXPECT_THAT(MessageOf(Ask({Part(site_.Url("/large")), Part(site_.Url("/large"))})),
              AllOf(HasSubstr("messages[0].content[1]"), HasSubstr("bytes of images in a chat")));
}

// Chats of an agent, whose session records them with their images.
class SessionChatImagesTest : public ChatImagesTest {
 protected:
  static constexpr char kId[] = "session-0123456789";

  void SetUp() override {
    path_ = testing::WriteVisionChatModel(folder_);
    // A template that only appends.
    folder_.Write("model/chat_template.jinja",
                  "{% for m in messages %}{% if m.role == 'assistant' %}={{ m.content }}!"
                  "{% elif m.content is string %}{{ m.content }}{% else %}"
                  "{% for p in m.content %}{% if p.type == 'image' %}"
                  "<|vision_start|><|image_pad|><|vision_end|>"
                  "{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}"
                  "{% if add_generation_prompt %}={% endif %}");
    openai_.listen = "127.0.0.1:0";
    setenv("TANDEM_OPENAI_TOKEN", "", 1);
    Start();
    v1::OpenSessionRequest request;
    request.set_session_id(kId);
    request.mutable_sampling()->set_temperature(0);
    request.mutable_sampling()->set_max_tokens(4);
    v1::OpenSessionResponse response;
    const auto context = rpc::MakeContext(kTimeout);
    ASSERT_OK(rpc::FromGrpcStatus(stub_->OpenSession(context.get(), request, &response)));
  }

  static json User(const json& content) { return {{"role", "user"}, {"content", content}}; }

  HttpAnswer Chat(const json& messages) {
    return HttpAsk(process_->openai_server()->port(),
                   HttpPost("/v1/chat/completions", json{{"messages", messages}}.dump(),
                            std::string("Authorization: Bearer ") + kId + "\r\n"),
                   60);
  }
  // The answer, as a message.
  json Answer(const json& messages) {
    const HttpAnswer answer = Chat(messages);
    EXPECT_EQ(answer.code, 200) << answer.body;
    if (answer.code != 200) return json();
    const json content = json::parse(answer.body)["choices"][0]["message"]["content"];
    return {{"role", "assistant"}, {"content", content}};
  }

  v1::CloseSessionResponse Close() {
    v1::CloseSessionRequest request;
    request.set_session_id(kId);
    v1::CloseSessionResponse response;
    const auto context = rpc::MakeContext(kTimeout);
    EXPECT_OK(rpc::FromGrpcStatus(stub_->CloseSession(context.get(), request, &response)));
    return response;
  }

  static std::vector<uint32_t> AllIds(const v1::RecordedCall& call) {
    std::vector<uint32_t> ids(call.prompt_token_ids().begin(), call.prompt_token_ids().end());
    ids.insert(ids.end(), call.token_ids().begin(), call.token_ids().end());
    return ids;
  }
};

TEST_F(SessionChatImagesTest, ATurnThatComesBackKeepsItsTokensAndImages) {
  json messages = json::array({User({Text("a"), Image("a.png")})});
  messages.push_back(Answer(messages));
  messages.push_back(User({Image("b.png"), Text("b")}));
  Answer(messages);
  // The same words about another picture.
  json other = messages;
  other[0] = User({Text("a"), Image("c.png")});
  Answer(other);

  const v1::CloseSessionResponse closed = Close();

  ASSERT_EQ(closed.calls_size(), 3);
  std::map<std::string, std::string> files;
  for (const common::v1::Image& image : closed.images()) {
    files[images::ImageDigest(image.data())] = image.data();
  }
  const std::string a = images::ImageDigest(FileOf("a.png")),
                    b = images::ImageDigest(FileOf("b.png")),
                    c = images::ImageDigest(FileOf("c.png"));
  EXPECT_EQ(files.size(), 3u);
  EXPECT_EQ(closed.images_size(), 3);  // each once
  EXPECT_EQ(files[b], FileOf("b.png"));
  EXPECT_THAT(closed.calls(0).image_digests(), ::testing::ElementsAre(a));
  EXPECT_THAT(closed.calls(1).image_digests(), ::testing::ElementsAre(a, b));
  EXPECT_THAT(closed.calls(2).image_digests(), ::testing::ElementsAre(c, b));
  const std::vector<uint32_t> first = AllIds(closed.calls(0)), second = AllIds(closed.calls(1));
  ASSERT_GT(second.size(), first.size());
  EXPECT_TRUE(std::equal(first.begin(), first.end(), second.begin()));
  // The returning turn is found in the cache; the one with another picture is not.
  EXPECT_GT(closed.calls(1).num_cached_tokens(), 0);
  EXPECT_EQ(closed.calls(2).num_cached_tokens(), 0);

  // What was recorded is what the tokens are worth with these images.
  for (const v1::RecordedCall& call : closed.calls()) {
    v1::ScoreRequest request;
    const std::vector<uint32_t> ids = AllIds(call);
    request.mutable_token_ids()->Add(ids.begin(), ids.end());
    for (const std::string& digest : call.image_digests()) {
      request.add_images()->set_data(files.at(digest));
    }
    v1::ScoreResponse scored;
    const auto context = rpc::MakeContext(kTimeout);
    ASSERT_OK(rpc::FromGrpcStatus(stub_->Score(context.get(), request, &scored)));
    for (int i = 0; i < call.logprobs_size(); ++i) {
      EXPECT_NEAR(call.logprobs(i), scored.logprobs(call.prompt_token_ids_size() - 1 + i), 1e-4);
    }
  }
}

TEST_F(SessionChatImagesTest, ImagesCountInWhatASessionMayRecord) {
  const auto large = [&](const std::string& name) {
    return Part("data:image/png;base64," +
                absl::Base64Escape(FileOf(name) + std::string(size_t{7} << 20, '\0')));
  };
  Answer(json::array({User(json::array({large("a.png")}))}));
  Answer(json::array({User({large("a.png"), Text("a")})}));  // no new one
  const HttpAnswer full = Chat(json::array({User(json::array({large("b.png")}))}));
  EXPECT_EQ(full.code, 400);
  EXPECT_THAT(full.body, AllOf(HasSubstr("bytes of new images"), HasSubstr("session")));
  EXPECT_EQ(Close().images_size(), 1);
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
