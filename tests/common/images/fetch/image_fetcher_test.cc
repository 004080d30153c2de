#include "common/images/fetch/image_fetcher.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include "absl/time/clock.h"
#include "common/images/image_source.h"
#include "tests/support/image_site.h"

namespace tandem::images {
namespace {

using ::tandem::testing::ImageSite;
using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

net::SocketAddress Ipv4(const char* text, int port) {
  net::SocketAddress out;
  auto& in = reinterpret_cast<sockaddr_in&>(out.bytes);
  in.sin_family = AF_INET;
  EXPECT_EQ(inet_pton(AF_INET, text, &in.sin_addr), 1) << text;
  out.length = sizeof(in);
  out.set_port(port);
  return out;
}

class ImageFetcherTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::string> Fetch(const std::string& path,
                                    ImageFetcher::Options options = ImageSite::OnThisMachine()) {
    return ImageFetcher(std::move(options)).Fetch(site_.Url(path));
  }

  ImageSite site_;
};

TEST_F(ImageFetcherTest, TakesPictures) {
  site_.PutPicture("/a.png", "picture");
  site_.PutPicture("/any", "bytes", "application/octet-stream");
  site_.PutPicture("/photo", "photo", "IMAGE/JPEG; quality=high");
  EXPECT_THAT(Fetch("/a.png"), IsOkAndHolds("picture"));
  EXPECT_THAT(Fetch("/any"), IsOkAndHolds("bytes"));
  EXPECT_THAT(Fetch("/photo"), IsOkAndHolds("photo"));
}

TEST_F(ImageFetcherTest, AsksForThePathWithItsQuery) {
  site_.PutPicture("/sizes/", "picture");
  EXPECT_THAT(Fetch("/sizes/?width=10&signature=abc#top"), IsOkAndHolds("picture"));
  EXPECT_EQ(site_.last_request().query, "width=10&signature=abc");
  EXPECT_THAT(*site_.last_request().Header("Accept"), HasSubstr("image/png"));
  EXPECT_EQ(site_.last_request().Header("Cookie"), nullptr);
}

TEST_F(ImageFetcherTest, ProductionReachesNoAddressOfThisMachine) {
  site_.PutPicture("/a.png", "picture");
  EXPECT_THAT(Fetch("/a.png", ImageFetcher::Options()),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("loopback")));
  EXPECT_EQ(site_.num_requests(), 0);
  for (const char* host : {"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "0",
                           "[fe80::1]", "10.1.2.3", "169.254.169.254", "192.168.0.1", "[fd00::1]",
                           "224.0.0.1", "[64:ff9b::7f00:1]"}) {
    EXPECT_THAT(ImageFetcher().Fetch(absl::StrCat("http://", host, ":", site_.port(), "/a.png")),
                StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("public internet")))
        << host;
  }
  EXPECT_EQ(site_.num_requests(), 0);
}

// The name is looked up once, and the connection goes to what was checked: a name that leads elsewhere
// the second time (DNS rebinding) is not asked a second time.
TEST_F(ImageFetcherTest, ConnectsToTheAddressThatWasChecked) {
  site_.PutPicture("/a.png", "picture");
  int num_asked = 0;
  std::vector<std::string> checked;
  ImageFetcher::Options options;
  options.resolve = [&](const net::HostPort& server) {
    EXPECT_EQ(server, (net::HostPort{"localhost", 1}));
    // Where the URL's own port leads nowhere.
    return ++num_asked == 1 ? std::vector{Ipv4("127.0.0.1", site_.port())}
                            : std::vector{Ipv4("127.0.0.1", 1)};
  };
  options.check_address = [](const net::SocketAddress&) { return absl::OkStatus(); };
  EXPECT_THAT(ImageFetcher(options).Fetch("http://localhost:1/a.png"), IsOkAndHolds("picture"));
  EXPECT_EQ(num_asked, 1);
}

TEST_F(ImageFetcherTest, LeavesOutAddressesThatAreNotGlobal) {
  site_.PutPicture("/a.png", "picture");
  ImageFetcher::Options options;
  options.resolve = [&](const net::HostPort&) {
    return std::vector{Ipv4("10.0.0.1", 80), Ipv4("127.0.0.1", site_.port())};
  };
  EXPECT_THAT(Fetch("/a.png", options), StatusIs(absl::StatusCode::kPermissionDenied,
                                                 HasSubstr("127.0.0.1, which is loopback")));
  EXPECT_EQ(site_.num_requests(), 0);
  options.check_address = ImageSite::OnThisMachine().check_address;
  EXPECT_THAT(Fetch("/a.png", options), IsOkAndHolds("picture"));
}

TEST_F(ImageFetcherTest, FollowsAFewRedirects) {
  site_.PutPicture("/a.png", "picture");
  site_.PutRedirect("/moved", "/a.png");
  site_.PutRedirect("/whole", site_.Url("/moved"));
  EXPECT_THAT(Fetch("/whole"), IsOkAndHolds("picture"));
  site_.PutRedirect("/round", "/round");
  const int before = site_.num_requests();
  EXPECT_THAT(Fetch("/round"),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("at most 4 redirects")));
  EXPECT_EQ(site_.num_requests(), before + 5);
}

TEST_F(ImageFetcherTest, ChecksWhereARedirectLeads) {
  for (const char* to : {"http://169.254.169.254/latest/meta-data", "http://[::ffff:10.0.0.1]/",
                         "//192.168.1.1/a.png"}) {
    site_.PutRedirect("/away", to);
    EXPECT_THAT(Fetch("/away"), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("tests")))
        << to;
  }
  for (const char* to : {"file:///etc/passwd", "gopher://localhost/", "", "a.png",
                         "http://user:secret@localhost/"}) {
    site_.PutRedirect("/away", to);
    EXPECT_THAT(Fetch("/away"), StatusIs(absl::StatusCode::kInvalidArgument,
                                         AllOf(HasSubstr("redirect"), Not(HasSubstr("secret")))))
        << to;
  }
}

TEST_F(ImageFetcherTest, RefusesWhatIsNoPicture) {
  EXPECT_THAT(Fetch("/none?token=secret"),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("/none: the server answers with status 404"),
                             Not(HasSubstr("secret")))));
  site_.PutPicture("/page", "<html>", "text/html; charset=utf-8");
  site_.PutPicture("/drawing", "<svg/>", "image/svg+xml");
  for (const char* path : {"/page", "/drawing"}) {
    EXPECT_THAT(Fetch(path), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("expected a response of type")));
  }
  site_.Put(
      "/packed",
      {.content_type = "image/png", .headers = {{"Content-Encoding", "gzip"}}, .body = "picture"});
  EXPECT_THAT(Fetch("/packed"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("gzip")));
  EXPECT_THAT(ImageFetcher().Fetch("ftp://example.org/a.png"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected http://")));
}

TEST_F(ImageFetcherTest, BoundsBytesAndTime) {
  site_.PutPicture("/large", std::string(1000, 'x'));
  ImageFetcher::Options options = ImageSite::OnThisMachine();
  options.max_bytes = 999;
  EXPECT_THAT(Fetch("/large", options),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("more than 999 bytes")));
  options.max_bytes = 1000;
  EXPECT_THAT(Fetch("/large", options), IsOkAndHolds(std::string(1000, 'x')));
  options.timeout = absl::ZeroDuration();
  EXPECT_THAT(Fetch("/large", options),
              StatusIs(absl::StatusCode::kDeadlineExceeded, ::testing::_));
}

TEST_F(ImageFetcherTest, EndsWhenItIsNoLongerNeeded) {
  const ImageFetcher fetcher(ImageSite::OnThisMachine());
  EXPECT_THAT(fetcher.Fetch("http://localhost:1/a.png", [] { return true; }),
              StatusIs(absl::StatusCode::kCancelled, ::testing::_));
}

TEST(IsWebUrl, KnowsHttpAndHttpsOnly) {
  EXPECT_TRUE(IsWebUrl("http://a"));
  EXPECT_TRUE(IsWebUrl("HTTPS://a"));
  EXPECT_FALSE(IsWebUrl("data:image/png;base64,"));
  EXPECT_FALSE(IsWebUrl("http.png"));
}

}  // namespace
}  // namespace tandem::images
