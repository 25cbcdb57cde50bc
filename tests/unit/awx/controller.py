# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stand-in for the API of AWX 24.6.1, /api/v2 over HTTP: objects in memory, and AWX's rules for what they may be."""

from __future__ import annotations

import base64
import itertools
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from . import rules

_Object = dict[str, Any]
USER, PASSWORD, TOKEN = "admin", "secret", "a-token"
HIDDEN = "$encrypted$"


class Refused(Exception):
    """The answer 400, or another one, with what is wrong."""

    def __init__(self, problem: object, status: int = 400) -> None:
        super().__init__(problem)
        self.answer = {"detail": problem, "error": problem}
        self.status = status


class Kind(NamedTuple):
    """One collection of the API. references: fields that hold the id of another object."""

    type: str
    required: tuple[str, ...] = ("name",)
    references: dict[str, str] = {}  # noqa: RUF012 - never changed
    unique: tuple[str, ...] = ("name", "organization")
    associations: dict[str, str] = {}  # noqa: RUF012 - never changed


_IN_AN_ORGANIZATION = {"organization": "organizations"}
_NODES = dict.fromkeys(("success_nodes", "failure_nodes", "always_nodes"), "workflow_job_template_nodes")
KINDS = {
    "organizations": Kind(
        "organization",
        references={"default_environment": "execution_environments"},
        unique=("name",),
        associations={"galaxy_credentials": "credentials"},
    ),
    "credential_types": Kind("credential_type", ("name", "kind"), unique=("name", "kind")),
    "credentials": Kind(
        "credential",
        ("name", "credential_type", "organization"),
        {**_IN_AN_ORGANIZATION, "credential_type": "credential_types"},
        ("name", "organization", "credential_type"),
    ),
    "execution_environments": Kind("execution_environment", ("name", "image"), _IN_AN_ORGANIZATION, ("name",)),
    "projects": Kind("project", references=_IN_AN_ORGANIZATION),
    "project_updates": Kind("project_update", unique=()),
    "inventories": Kind("inventory", ("name", "organization"), _IN_AN_ORGANIZATION),
    "inventory_sources": Kind(
        "inventory_source",
        ("name", "inventory", "source"),
        {
            "inventory": "inventories",
            "source_project": "projects",
            "credential": "credentials",
            "execution_environment": "execution_environments",
        },
        ("name", "inventory"),
    ),
    "job_templates": Kind(
        "job_template",
        ("name", "project", "playbook"),
        {
            **_IN_AN_ORGANIZATION,
            "project": "projects",
            "inventory": "inventories",
            "execution_environment": "execution_environments",
        },
        associations={"credentials": "credentials"},
    ),
    "workflow_job_templates": Kind("workflow_job_template", references=_IN_AN_ORGANIZATION),
    "workflow_job_template_nodes": Kind(
        "workflow_job_template_node",
        ("workflow_job_template",),
        {"workflow_job_template": "workflow_job_templates", "unified_job_template": "unified_job_templates"},
        ("identifier", "workflow_job_template"),
        _NODES,
    ),
    "workflow_approval_templates": Kind("workflow_approval_template", unique=()),
    "schedules": Kind(
        "schedule",
        ("name", "rrule", "unified_job_template"),
        {"unified_job_template": "unified_job_templates"},
        ("name", "unified_job_template"),
    ),
}
UNIFIED = ("job_templates", "workflow_job_templates", "projects", "inventory_sources")  # that one can look for
WITH_SURVEYS = ("job_templates", "workflow_job_templates")


class Controller:
    """AWX as it is after its installation. project: the folder that a project has after each sync."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.objects: dict[str, dict[int, _Object]] = {name: {} for name in KINDS}
        self.linked: dict[tuple[str, int, str], list[int]] = {}
        self.surveys: dict[int, _Object] = {}
        self.writes: list[str] = []
        self._ids = itertools.count(1)
        machine = [{"id": name, "secret": name != "username"} for name in ("username", "password", "ssh_key_data")]
        for name, kind in (("Machine", "ssh"), ("Ansible Galaxy/Automation Hub API Token", "galaxy")):
            self._keep("credential_types", {"name": name, "kind": kind, "inputs": {"fields": machine}})
        galaxy = max(self.objects["credential_types"])
        self._keep("credentials", {"name": "Ansible Galaxy", "organization": None, "credential_type": galaxy})

    def named(self, collection: str) -> dict[str, _Object]:
        """The objects of a collection by their names."""
        return {one["identifier" if "identifier" in one else "name"]: one for one in self.objects[collection].values()}

    def find(self, collection: str, number: int) -> _Object:
        places = (*UNIFIED, "workflow_approval_templates") if collection == "unified_job_templates" else (collection,)
        for place in places:
            if number in self.objects.get(place, {}):
                return self.objects[place][number]
        raise Refused(f"Invalid pk {number!r} - object does not exist in {collection}.")

    def _keep(self, collection: str, fields: _Object) -> _Object:
        number = next(self._ids)
        self.objects[collection][number] = {**fields, "id": number}
        return self.objects[collection][number]

    # What each request does

    def listed(self, collection: str, query: dict[str, str]) -> _Object:
        places = UNIFIED if collection == "unified_job_templates" else (collection,)
        if any(place not in KINDS for place in places):
            raise Refused("Not found.", 404)
        found = [self.shown(place, one) for place in places for one in self.objects[place].values()]
        found = [one for one in found if all(str(one.get(name)) == wanted for name, wanted in query.items())]
        return _page(found)

    def shown(self, collection: str, one: _Object) -> _Object:
        url = f"/api/v2/{collection}/{one['id']}/"
        related = {"update": url + "update/", "survey_spec": url + "survey_spec/"}
        if collection == "workflow_job_template_nodes" and one.get("unified_job_template"):
            number = one["unified_job_template"]
            place = next(name for name in (*UNIFIED, "workflow_approval_templates") if number in self.objects[name])
            related["unified_job_template"] = f"/api/v2/{place}/{number}/"
        shown = {**one, "url": url, "type": KINDS[collection].type, "related": related, "summary_fields": {}}
        if collection == "credentials" and one.get("inputs"):
            secrets = {field["id"] for field in self._inputs(one) if field.get("secret")}
            shown["inputs"] = {name: HIDDEN if name in secrets else value for name, value in one["inputs"].items()}
        return shown

    def _inputs(self, credential: _Object) -> list[_Object]:
        fields: list[_Object] = self.find("credential_types", credential["credential_type"])["inputs"]["fields"]
        return fields

    def created(self, collection: str, fields: _Object) -> _Object:
        if collection not in KINDS:
            raise Refused("Not found.", 404)
        kind = KINDS[collection]
        if missing := [name for name in kind.required if not fields.get(name)]:
            raise Refused({name: ["This field is required."] for name in missing})
        fields = {"organization": None, **fields} if "organization" in kind.references else fields
        fields = {**({"kind": ""} if collection == "inventories" else {}), **self._checked(collection, fields)}
        same = [one for one in self.objects[collection].values() if kind.unique and self._same(kind, one, fields)]
        if same:
            raise Refused({"__all__": [f"{kind.type} with this {' and '.join(kind.unique)} already exists."]})
        if collection != "projects":
            return self.shown(collection, self._keep(collection, fields))
        made = self._keep(collection, {**fields, "scm_revision": ""})
        update = self.synced(made["id"])  # begins by itself
        return {**self.shown(collection, made), "summary_fields": {"current_update": {"id": update["id"]}}}

    @staticmethod
    def _same(kind: Kind, one: _Object, fields: _Object) -> bool:
        return all(one.get(name) == fields.get(name) for name in kind.unique)

    def changed(self, collection: str, number: int, fields: _Object) -> _Object:
        one = self.find(collection, number)
        if collection == "workflow_approval_templates":
            fields = {name: fields[name] for name in ("name", "description", "timeout") if name in fields}
        one.update(self._checked(collection, {**one, **fields}))
        return self.shown(collection, one)

    def _checked(self, collection: str, fields: _Object) -> _Object:
        for name, target in KINDS[collection].references.items():
            if fields.get(name) is not None:
                self.find(target, fields[name])
        fields = {name: "" if name == "kind" and value is None else value for name, value in fields.items()}
        check: Callable[[_Object], None] | None = getattr(self, f"_check_{collection}", None)
        if check is not None:
            check(fields)
        return fields

    def _check_credential_types(self, fields: _Object) -> None:
        if fields["kind"] not in ("cloud", "net"):
            raise Refused({"kind": [f"Must be 'cloud' or 'net', not {fields['kind']}"]})
        if problem := rules.injector_error(fields.get("inputs", {}), fields.get("injectors", {})):
            raise Refused({"injectors": [problem]})

    def _check_credentials(self, fields: _Object) -> None:
        known = {field["id"] for field in self._inputs(fields)}
        if strange := set(fields.get("inputs", {})) - known:
            raise Refused({"inputs": {name: ["Additional properties are not allowed"] for name in strange}})

    def _check_inventory_sources(self, fields: _Object) -> None:
        if fields["source"] == "scm" and not fields.get("source_project"):
            raise Refused({"source_project": ["Project required for scm type sources."]})
        if fields.get("credential") is not None:
            credential = self.find("credentials", fields["credential"])
            if self.find("credential_types", credential["credential_type"])["kind"] in ("ssh", "scm", "vault"):
                raise Refused("Credentials of type machine are disallowed for custom inventory sources.")

    def _check_job_templates(self, fields: _Object) -> None:
        if fields.get("inventory") is None and not fields.get("ask_inventory_on_launch"):
            raise Refused({"inventory": ["You must either set a default value or ask to prompt on launch."]})
        if fields["playbook"] not in self.find("projects", fields["project"])["playbooks"]:
            raise Refused({"playbook": ["Playbook not found for project."]})

    def _check_schedules(self, fields: _Object) -> None:
        if problems := rules.rrule_errors(fields["rrule"]):
            raise Refused({"rrule": problems})
        template = self.find("unified_job_templates", fields["unified_job_template"])
        try:
            rules.launched(
                {**template, "survey_spec": self.surveys.get(template["id"], {})}, fields.get("extra_data", {})
            )
        except ValueError as exc:
            raise Refused({"extra_data": [str(exc)]}) from exc

    def asked(self, collection: str, number: int, spec: _Object) -> _Object:
        """Set the survey of a template."""
        if problem := rules.survey_error(spec):
            raise Refused(problem)
        self.surveys[self.find(collection, number)["id"]] = spec
        return {}

    def associated(self, collection: str, number: int, name: str, wanted: _Object) -> None:
        if name not in KINDS[collection].associations:
            raise Refused("Not found.", 404)
        other = self.find(KINDS[collection].associations[name], wanted["id"])
        links = self.linked.setdefault((collection, number, name), [])
        if wanted.get("disassociate"):
            links.remove(other["id"])
            return
        if name in _NODES:
            self._check_edge(number, other)
        elif name == "galaxy_credentials":
            if self.find("credential_types", other["credential_type"])["kind"] != "galaxy":
                raise Refused("Credential must be a Galaxy credential, not Machine.")
        elif {self.objects["credentials"][one]["credential_type"] for one in links} & {other["credential_type"]}:
            raise Refused("Cannot assign multiple credentials of one type.")
        links.append(other["id"])

    def _check_edge(self, number: int, other: _Object) -> None:
        one = self.find("workflow_job_template_nodes", number)
        if one["workflow_job_template"] != other["workflow_job_template"]:
            raise Refused("The nodes are of different workflows.")
        edges: dict[int, list[int]] = {number: [other["id"]]}
        for (_collection, parent, name), children in self.linked.items():
            if name in _NODES:
                edges.setdefault(parent, []).extend(children)
        if rules.cyclic(edges):
            raise Refused("Cycle detected.")

    def approval(self, number: int, fields: _Object) -> _Object:
        node = self.find("workflow_job_template_nodes", number)
        if not fields.get("name") or not isinstance(fields.get("timeout", 0), int):
            raise Refused({"name": ["This field is required, and timeout must be an integer."]})
        kept = {name: fields.get(name, empty) for name, empty in (("name", ""), ("description", ""), ("timeout", 0))}
        made = self._keep("workflow_approval_templates", kept)
        node["unified_job_template"] = made["id"]
        return self.shown("workflow_approval_templates", made)

    def synced(self, number: int) -> _Object:
        project = self.find("projects", number)
        project.update(playbooks=rules.playbooks(self.project), scm_revision="0" * 40)
        update = {"status": "successful", "failed": False, "finished": "2026-01-01T00:00:00Z", "name": project["name"]}
        made = self._keep("project_updates", {**update, "event_processing_finished": True, "scm_revision": "0" * 40})
        return self.shown("project_updates", made)

    def answer(self, method: str, parts: list[str], query: dict[str, str], body: _Object) -> tuple[int, object]:
        """The status and the body for a request."""
        if method == "GET":
            return 200, self._read(parts, query)
        self.writes.append(f"{method} {'/'.join(parts)}")
        return self._written(method, parts, body)

    def _read(self, parts: list[str], query: dict[str, str]) -> _Object:
        match parts:
            case [collection]:
                return self.listed(collection, query)
            case [collection, number]:
                return self.shown(collection, self.find(collection, int(number)))
            case [collection, number, "survey_spec"] if collection in WITH_SURVEYS:
                return self.surveys.get(int(number), {})
            case [collection, number, name] if name in KINDS[collection].associations:
                target = KINDS[collection].associations[name]
                linked = [self.find(target, one) for one in self.linked.get((collection, int(number), name), [])]
                return _page([self.shown(target, one) for one in linked])
        raise Refused("Not found.", 404)

    def _written(self, method: str, parts: list[str], body: _Object) -> tuple[int, object]:
        match method, parts:
            case "POST", ["tokens"]:
                return 201, {"id": 1, "token": TOKEN}
            case "DELETE", ["tokens", _]:
                return 204, None
            case "POST", [collection]:
                return 201, self.created(collection, body)
            case "PATCH", [collection, number]:
                return 200, self.changed(collection, int(number), body)
            case "POST", [collection, number, "survey_spec"] if collection in WITH_SURVEYS:
                return 200, self.asked(collection, int(number), body)
            case "POST", ["projects", number, "update"]:
                return 202, self.synced(int(number))
            case "POST", ["workflow_job_template_nodes", number, "create_approval_template"]:
                return 201, self.approval(int(number), body)
            case "POST", [collection, number, name]:
                self.associated(collection, int(number), name, body)
                return 204, None
        raise Refused("Not found.", 404)


def _page(found: list[_Object]) -> _Object:
    return {"count": len(found), "next": None, "previous": None, "results": found}


class Server(ThreadingHTTPServer):
    """Serves a controller on a free port of this machine."""

    daemon_threads = True

    def __init__(self, controller: Controller) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.controller = controller
        self.one_at_a_time = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.thread = threading.Thread(target=self.serve_forever)
        self.thread.start()

    def stop(self) -> None:
        self.shutdown()
        self.thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def _serve(self) -> None:
        split = urlsplit(self.path)
        answer: object
        try:
            self._admit(split.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            parts = split.path.removeprefix("/api/v2/").strip("/").split("/")
            with self.server.one_at_a_time:
                status, answer = self.server.controller.answer(self.command, parts, dict(parse_qsl(split.query)), body)
        except Refused as exc:
            status, answer = exc.status, exc.answer
        self.send_response(status)
        self.send_header("X-API-Product-Name", "AWX")
        self.send_header("X-API-Product-Version", "24.6.1")
        written = b"" if status == 204 else json.dumps({} if answer is None else answer).encode()
        self.send_header("Content-Length", str(len(written)))
        self.end_headers()
        self.wfile.write(written)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve

    def _admit(self, path: str) -> None:
        basic = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        wanted = f"Basic {basic}" if path.startswith("/api/v2/tokens/") else f"Bearer {TOKEN}"
        if self.headers.get("Authorization") != wanted:
            raise Refused("Authentication credentials were not provided.", 401)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing: what was refused is in the answer."""
