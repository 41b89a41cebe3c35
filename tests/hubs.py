"""A server that stands in for the Hugging Face Hub."""

import base64
from collections.abc import Iterator
import contextlib
import dataclasses
import hashlib
import http.server
import json
import pathlib
import threading
from typing import Any

import pytest

COMMIT = 40 * 'a'


@dataclasses.dataclass
class Hub:
  """Stands in for the Hugging Face Hub, with one repository, me/rules.

  Attributes:
    files: path -> content, in every revision.
    url: The URL of the server.
    commit: The newest commit.
    requests: The methods and paths of requests.
  """

  files: dict[str, bytes]
  url: str = ''
  commit: str = COMMIT
  requests: list[str] = dataclasses.field(default_factory=list)

  def post(self, path: str, body: bytes) -> dict[str, Any]:
    """Answers the requests of huggingface_hub to upload files."""
    if path == '/api/models/me/rules/preupload/main':
      listed = json.loads(body)['files']
      answer = {'uploadMode': 'regular', 'shouldIgnore': False}
      return {'files': [{'path': x['path'], **answer} for x in listed]}
    if path == '/api/validate-yaml':
      return {'errors': [], 'warnings': []}
    assert path == '/api/models/me/rules/commit/main'
    for line in map(json.loads, body.splitlines()):
      if line['key'] == 'file':
        content = base64.b64decode(line['value']['content'])
        self.files[line['value']['path']] = content
    url = f'{self.url}/me/rules/commit/{COMMIT}'
    return {'commitUrl': url, 'commitOid': COMMIT, 'pullRequestUrl': None}


def handler_of(hub: Hub) -> type[http.server.BaseHTTPRequestHandler]:
  class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status: int, content: bytes, **headers: str) -> None:
      hub.requests.append(f'{self.command} {self.path}')
      self.send_response(status)
      self.send_header('Content-Length', str(len(content)))
      for name, value in headers.items():
        self.send_header(name.replace('_', '-'), value)
      self.end_headers()
      if self.command != 'HEAD':
        self.wfile.write(content)

    def do_GET(self) -> None:
      if self.path.startswith('/api/models/me/rules/tree/main'):
        listed = [
          {'type': 'file', 'path': x, 'size': 1, 'oid': COMMIT}
          for x in hub.files
        ]
        answer = json.dumps(listed).encode()
        self.answer(200, answer, Content_Type='application/json')
        return
      _, owner, name, kind, revision, path = self.path.split('/', 5)
      content = hub.files.get(path)
      if (owner, name, kind) != ('me', 'rules', 'resolve'):
        self.answer(404, b'', X_Error_Code='RepoNotFound')
      elif content is None:
        found = {'X_Error_Code': 'EntryNotFound', 'X_Repo_Commit': hub.commit}
        self.answer(404, b'', **found)
      else:
        etag = f'"{hashlib.sha1(content).hexdigest()}"'
        commit = revision if len(revision) == 40 else hub.commit
        self.answer(200, content, ETag=etag, X_Repo_Commit=commit)

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
      body = self.rfile.read(int(self.headers['Content-Length']))
      if self.path == '/api/repos/create':
        # It exists, as it does from the second upload on.
        answer = json.dumps({'url': f'{hub.url}/me/rules'}).encode()
        self.answer(409, answer, Content_Type='application/json')
        return
      answer = json.dumps(hub.post(self.path.partition('?')[0], body)).encode()
      self.answer(200, answer, Content_Type='application/json')

    def log_message(self, format: str, *args: Any) -> None:
      pass

  return Handler


@contextlib.contextmanager
def listening(
  handler: type[http.server.BaseHTTPRequestHandler],
) -> Iterator[str]:
  """Runs a server in a thread; yields its URL."""
  with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as httpd:
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
    thread.start()
    yield f'http://127.0.0.1:{httpd.server_port}'
    httpd.shutdown()
    thread.join()


@contextlib.contextmanager
def serve(files: dict[str, bytes], cache: pathlib.Path) -> Iterator[Hub]:
  """Serves files to huggingface_hub, with a folder as its cache."""
  constants = pytest.importorskip(
    'huggingface_hub.constants', reason="pip install -e '.[hub]'"
  )
  served = Hub(files)
  with (
    listening(handler_of(served)) as served.url,
    pytest.MonkeyPatch.context() as patch,
  ):
    # HF_ENDPOINT and HF_HUB_CACHE set these, but are read only at the import.
    template = f'{served.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}'
    patch.setattr(constants, 'ENDPOINT', served.url)
    patch.setattr(constants, 'HUGGINGFACE_CO_URL_TEMPLATE', template)
    patch.setattr(constants, 'HF_HUB_CACHE', str(cache))
    patch.setenv('HF_TOKEN', 'secret')
    patch.setenv('NO_PROXY', '127.0.0.1')
    yield served
