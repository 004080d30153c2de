#include "common/http/host_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/support/status_matchers.h"

namespace tandem::http {
namespace {

using ::tandem::testing::StatusIs;

HostPolicy Policy(const std::string& listen, std::vector<std::string> allowed = {}) {
  auto policy = HostPolicy::Make({listen, 8000}, allowed);
  EXPECT_OK(policy.status());
  return *std::move(policy);
}

bool AnswersTo(const HostPolicy& policy, const std::string& host) {
  return !policy.CheckHost({.headers = {{"host", host}}}).has_value();
}

bool ServesPageOf(const HostPolicy& policy, const std::string& origin, const std::string& host) {
  return !policy.CheckOrigin({.headers = {{"Host", host}, {"Origin", origin}}}).has_value();
}

TEST(HostPolicy, ALoopbackListenerAnswersToThisMachineAlone) {
  for (const char* listen : {"127.0.0.1", "::1", "localhost"}) {
    const HostPolicy policy = Policy(listen);
    for (const char* host : {"localhost", "LOCALHOST:8000", "localhost.", "a.localhost:1",
                             "127.0.0.1", "127.0.0.1:8000", "[::1]:8000", "10.1.2.3"}) {
      EXPECT_TRUE(AnswersTo(policy, host)) << listen << " " << host;
    }
    for (const char* host :
         {"evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example",
          "rollout", "x.internal", "", "a b", "[evil]", "[::1", "localhost:port", "[::1]x",
          "localhost:99999", "user@localhost", "evil.example:80:80"}) {
      EXPECT_FALSE(AnswersTo(policy, host)) << listen << " " << host;
    }
  }
}

TEST(HostPolicy, ANetworksListenerAnswersToNamesThatNobodyCanRegister) {
  for (const char* listen : {"0.0.0.0", "::", "10.1.2.3", "pod-0"}) {
    const HostPolicy policy = Policy(listen);
    for (const char* host :
         {"10.1.2.3:9400", "[fd00::17]:9400", "localhost", "rollout-0:9400", "rollout.ns.svc:8000",
          "rollout-0.rollout.ns.svc.cluster.local:8000", "host.docker.internal:9400"}) {
      EXPECT_TRUE(AnswersTo(policy, host)) << listen << " " << host;
    }
    for (const char* host : {"evil.example", "svc.evil.example", "evil.dev", "evilsvc.com"}) {
      EXPECT_FALSE(AnswersTo(policy, host)) << listen << " " << host;
    }
  }
}

TEST(HostPolicy, AnswersToTheNameItListensOn) {
  EXPECT_TRUE(AnswersTo(Policy("gpu-7.example.org"), "gpu-7.example.org:8000"));
  EXPECT_FALSE(AnswersTo(Policy("gpu-7.example.org"), "gpu-8.example.org:8000"));
}

TEST(HostPolicy, AllowedNamesAreAnsweredAndTheirPagesServed) {
  const HostPolicy policy = Policy("127.0.0.1", {"API.example.org", ".lab.example"});
  EXPECT_TRUE(AnswersTo(policy, "api.example.org"));
  EXPECT_TRUE(AnswersTo(policy, "a.lab.example:443"));
  EXPECT_FALSE(AnswersTo(policy, "lab.example"));
  EXPECT_FALSE(AnswersTo(policy, "x.api.example.org"));
  EXPECT_TRUE(ServesPageOf(policy, "https://api.example.org", "127.0.0.1:8000"));
  EXPECT_FALSE(ServesPageOf(policy, "https://evil.example", "127.0.0.1:8000"));
  EXPECT_THAT(HostPolicy::Make({"127.0.0.1", 1}, {"http://x"}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
}

TEST(HostPolicy, ServesPagesOfItsOwnOriginOnly) {
  const HostPolicy policy = Policy("127.0.0.1");
  EXPECT_TRUE(ServesPageOf(policy, "http://127.0.0.1:8000", "127.0.0.1:8000"));
  EXPECT_TRUE(ServesPageOf(policy, "http://localhost", "localhost:80"));
  EXPECT_TRUE(ServesPageOf(policy, "https://localhost", "localhost"));
  EXPECT_TRUE(ServesPageOf(policy, "http://[::1]:8000", "[::1]:8000"));
  for (const char* origin : {"http://evil.example", "null", "", "http://127.0.0.1:3000",
                             "http://localhost:8000", "http://127.0.0.1", "file://127.0.0.1:8000",
                             "chrome-extension://127.0.0.1:8000", "127.0.0.1:8000"}) {
    EXPECT_FALSE(ServesPageOf(policy, origin, "127.0.0.1:8000")) << origin;
  }
}

TEST(HostPolicy, ALinkOpensThePageAndAnotherSitesPageLoadsNothing) {
  const HostPolicy policy = Policy("127.0.0.1");
  const auto passes = [&](const std::string& method, Headers headers) {
    return !policy.CheckOrigin({.method = method, .headers = std::move(headers)}).has_value();
  };
  EXPECT_TRUE(passes("GET", {}));
  EXPECT_TRUE(passes("GET", {{"Sec-Fetch-Site", "none"}}));
  EXPECT_TRUE(passes("GET", {{"Sec-Fetch-Site", "same-origin"}}));
  EXPECT_TRUE(passes("GET", {{"Sec-Fetch-Site", "cross-site"},
                             {"Sec-Fetch-Mode", "navigate"},
                             {"Sec-Fetch-Dest", "document"}}));
  EXPECT_FALSE(passes("GET", {{"Sec-Fetch-Site", "cross-site"},
                              {"Sec-Fetch-Mode", "navigate"},
                              {"Sec-Fetch-Dest", "iframe"}}));
  EXPECT_FALSE(passes("GET", {{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Mode", "no-cors"}}));
  EXPECT_FALSE(passes("GET", {{"Sec-Fetch-Site", "same-site"}}));
  EXPECT_FALSE(passes("POST", {{"Sec-Fetch-Site", "cross-site"},
                               {"Sec-Fetch-Mode", "navigate"},
                               {"Sec-Fetch-Dest", "document"}}));
}

}  // namespace
}  // namespace tandem::http
