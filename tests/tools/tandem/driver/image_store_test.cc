#include "tools/tandem/driver/image_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/images/image_digest.h"
#include "common/io/read_file.h"
#include "nlohmann/json.hpp"
#include "tests/support/image_site.h"
#include "tests/support/picture_data.h"
#include "tests/support/status_matchers.h"
#include "tools/tandem/driver/image_reader.h"
#include "tools/tandem/driver/prompt_source.h"

namespace tandem::driver {
namespace {

using nlohmann::json;
using ::tandem::testing::ImageSite;
using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::SquaresPng;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ImageStoreTest : public ::testing::Test {
 protected:
  ImageStore Store() const { return ImageStore(folder_ / "run/images"); }
  UrlImages Urls() const {
    return UrlImages(Store(), images::ImageFetcher(ImageSite::OnThisMachine()), nullptr);
  }
  // The files below run/images, but for folders.
  int NumFiles() const {
    int count = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "run")) {
      count += entry.is_regular_file() ? 1 : 0;
    }
    return count;
  }

  const TempFolder folder_;
  ImageSite site_;
  const std::string picture_ = SquaresPng(2, 30);
};

TEST_F(ImageStoreTest, KeepsAFileOnceByItsDigest) {
  ASSERT_OK_AND_ASSIGN(const PromptImage image, Store().Keep(picture_));
  EXPECT_EQ(image.digest, images::ImageDigest(picture_));
  EXPECT_EQ(image.source, folder_ / "run/images/" + absl::BytesToHexString(image.digest));
  EXPECT_THAT(ReadImageFile(image), IsOkAndHolds(picture_));
  EXPECT_THAT(Store().Keep(picture_), IsOkAndHolds(image));
  EXPECT_EQ(NumFiles(), 1);
}

TEST_F(ImageStoreTest, RepairsAFileThatIsNotWhatItsNameSays) {
  ASSERT_OK_AND_ASSIGN(const PromptImage image, Store().Keep(picture_));
  folder_.Write("run/images/" + absl::BytesToHexString(image.digest), "damaged");
  EXPECT_THAT(Store().Keep(picture_), IsOkAndHolds(image));
  EXPECT_THAT(ReadImageFile(image), IsOkAndHolds(picture_));
}

TEST_F(ImageStoreTest, AUrlIsFetchedOnceForARun) {
  site_.PutPicture("/a.png", picture_);
  ASSERT_OK_AND_ASSIGN(const PromptImage image, Urls().Get(site_.Url("/a.png?size=2")));
  EXPECT_THAT(ReadImageFile(image), IsOkAndHolds(picture_));
  // The server shows something else by now; the run that starts again sees what it saw.
  site_.PutPicture("/a.png", SquaresPng(3, 0));
  EXPECT_THAT(Urls().Get(site_.Url("/a.png?size=2")), IsOkAndHolds(image));
  EXPECT_EQ(site_.num_requests(), 1);
  // Another URL is another picture.
  ASSERT_OK_AND_ASSIGN(const PromptImage other, Urls().Get(site_.Url("/a.png?size=3")));
  EXPECT_NE(other.digest, image.digest);
  EXPECT_EQ(site_.num_requests(), 2);
}

TEST_F(ImageStoreTest, ADamagedCopyIsFetchedAgain) {
  site_.PutPicture("/a.png", picture_);
  ASSERT_OK_AND_ASSIGN(const PromptImage image, Urls().Get(site_.Url("/a.png")));
  std::filesystem::remove(image.source);
  EXPECT_THAT(Urls().Get(site_.Url("/a.png")), IsOkAndHolds(image));
  EXPECT_THAT(ReadImageFile(image), IsOkAndHolds(picture_));
  EXPECT_EQ(site_.num_requests(), 2);
}

TEST_F(ImageStoreTest, WhatIsNoPictureIsNotKept) {
  site_.PutPicture("/a.png", picture_.substr(0, 60));
  EXPECT_THAT(Urls().Get(site_.Url("/a.png")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("/a.png: PNG")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
  site_.PutPicture("/a.png", picture_);
  EXPECT_OK(Urls().Get(site_.Url("/a.png")).status());
}

TEST_F(ImageStoreTest, FetchesSeveralUrlsAtATime) {
  std::vector<std::string> urls;
  for (int i = 0; i < 4; ++i) {
    site_.PutPicture(absl::StrCat("/", i, ".png"), SquaresPng(1 + i, 0));
    urls.push_back(site_.Url(absl::StrCat("/", i, ".png")));
  }
  urls.push_back(urls[0]);
  site_.AnswerTogether(4);
  const UrlImages images = Urls();
  EXPECT_TRUE(images.Prefetch(urls));
  EXPECT_EQ(site_.num_requests(), 4);
  for (int i = 0; i < 4; ++i) {
    ASSERT_OK_AND_ASSIGN(const PromptImage image, images.Get(urls[i]));
    EXPECT_THAT(ReadImageFile(image), IsOkAndHolds(SquaresPng(1 + i, 0)));
  }
  EXPECT_EQ(site_.num_requests(), 4);
}

TEST_F(ImageStoreTest, TheErrorOfAPrefetchedUrlIsThatOfItsUrlOnce) {
  const UrlImages images = Urls();
  EXPECT_FALSE(images.Prefetch({site_.Url("/a.png")}));
  EXPECT_THAT(images.Get(site_.Url("/a.png")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/a.png: the server answers with")));
  EXPECT_EQ(site_.num_requests(), 1);
  site_.PutPicture("/a.png", picture_);
  EXPECT_OK(images.Get(site_.Url("/a.png")).status());
}

class UrlRowsTest : public ImageStoreTest {
 protected:
  void SetUp() override {
    model_ = testing::WritePictureModel(folder_);
    ASSERT_OK_AND_ASSIGN(tokenizer_, LoadTokenizerIfAny(model_));
  }

  // The prompt of a row whose message has the image at `url`.
  absl::StatusOr<Prompt> Read(const std::string& url, const UrlImages* urls) {
    const json part = {{"type", "image_url"}, {"image_url", {{"url", url}}}};
    const json row = {{"prompt", {{{"role", "user"}, {"content", json::array({part})}}}}};
    absl::StatusOr<PromptSource> source = LoadRows(row.dump() + "\n", urls);
    if (!source.ok()) return source.status();
    return source->prompts().front();
  }
  absl::StatusOr<PromptSource> LoadRows(const std::string& rows, const UrlImages* urls) {
    absl::StatusOr<std::unique_ptr<ImageReader>> reader =
        ImageReader::Create(model_, tokenizer_.get(), urls);
    if (!reader.ok()) return reader.status();
    config::v1::DataConfig config;
    config.set_prompt_key("prompt");
    config.set_image_key("images");
    config.set_max_prompt_length(64);
    RowNeeds needs;
    needs.images = reader->get();
    return PromptSource::Load({folder_.Write("rows.jsonl", rows)}, config, tokenizer_.get(), 0,
                              needs);
  }

  std::string model_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
};

TEST_F(UrlRowsTest, ARowsImageIsTheFileThatTheRunKeeps) {
  site_.PutPicture("/a.png", picture_);
  const UrlImages urls = Urls();
  ASSERT_OK_AND_ASSIGN(const Prompt prompt, Read(site_.Url("/a.png"), &urls));
  ASSERT_EQ(prompt.images.size(), 1u);
  EXPECT_EQ(prompt.images[0].source,
            folder_ / "run/images/" + absl::BytesToHexString(images::ImageDigest(picture_)));
  EXPECT_EQ(std::count(prompt.token_ids.begin(), prompt.token_ids.end(), 16u), 4);
}

TEST_F(UrlRowsTest, ErrorsNameTheRowAndTheUrl) {
  const UrlImages urls = Urls();
  EXPECT_THAT(Read(site_.Url("/none.png"), &urls),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("rows.jsonl:1"), HasSubstr("messages[0].content[0]"),
                             HasSubstr("/none.png: the server answers with status 404"))));
}

TEST_F(UrlRowsTest, TheImagesOfAllRowsAreFetchedTogether) {
  std::string rows;
  for (int i = 0; i < 3; ++i) {
    site_.PutPicture(absl::StrCat("/", i, ".png"), picture_);
    const std::string url = site_.Url(absl::StrCat("/", i, ".png"));
    const json part = {{"type", "image"}};
    json row = {{"prompt", {{{"role", "user"}, {"content", json::array({part})}}}}};
    if (i == 0) {
      row["prompt"][0]["content"][0]["image"] = url;
    } else {
      row["images"] = {url};
    }
    rows += row.dump() + "\n";
  }
  site_.AnswerTogether(3);
  const UrlImages urls = Urls();
  ASSERT_OK_AND_ASSIGN(const PromptSource source, LoadRows(rows, &urls));
  EXPECT_EQ(source.prompts().size(), 3u);
  EXPECT_EQ(site_.num_requests(), 3);
}

TEST_F(UrlRowsTest, TheFirstRowAtFaultIsNamed) {
  site_.PutPicture("/good.png", picture_);
  std::string rows;
  for (const char* path : {"/good.png", "/b.png", "/a.png"}) {
    const json part = {{"type", "image_url"}, {"image_url", {{"url", site_.Url(path)}}}};
    rows += json{{"prompt", {{{"role", "user"}, {"content", json::array({part})}}}}}.dump() + "\n";
  }
  const UrlImages urls = Urls();
  EXPECT_THAT(
      LoadRows(rows, &urls).status(),
      StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr("rows.jsonl:2"), HasSubstr("/b.png"))));
}

TEST_F(UrlRowsTest, NothingIsFetchedUnlessAskedFor) {
  site_.PutPicture("/a.png", picture_);
  EXPECT_THAT(Read(site_.Url("/a.png"), nullptr),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr("rows.jsonl:1"), HasSubstr("data.allow_urls"))));
  EXPECT_EQ(site_.num_requests(), 0);
}

}  // namespace
}  // namespace tandem::driver
