// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"path"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateVolumes checks the volumes and returns them by name.
func validateVolumes(at *field.Path, volumes []v1.Volume) (map[string]*v1.Volume, field.ErrorList) {
	byName := make(map[string]*v1.Volume, len(volumes))
	var errs field.ErrorList
	for i := range volumes {
		v := &volumes[i]
		path := at.Index(i)
		if v.Name == "" {
			errs = append(errs, field.Required(path.Child("name"), ""))
		} else {
			errs = append(errs, invalid(path.Child("name"), v.Name, validation.IsDNS1123Label(v.Name))...)
		}
		if byName[v.Name] != nil {
			errs = append(errs, field.Duplicate(path.Child("name"), v.Name))
		}
		byName[v.Name] = v
		errs = append(errs, validateVolume(path, v)...)
	}
	return byName, errs
}

func validateVolume(at *field.Path, v *v1.Volume) field.ErrorList {
	var errs field.ErrorList
	if n := sources(v); n > 1 {
		errs = append(errs, field.Forbidden(at, "may not specify more than 1 volume type"))
	}
	if e := v.EmptyDir; e != nil && e.SizeLimit != nil && e.SizeLimit.Sign() < 0 {
		errs = append(errs, field.Invalid(at.Child("emptyDir", "sizeLimit"), e.SizeLimit.String(), "must not be negative"))
	}
	if h := v.HostPath; h != nil {
		p := at.Child("hostPath")
		if h.Path == "" {
			errs = append(errs, field.Required(p.Child("path"), ""))
		}
		if slices.Contains(strings.Split(h.Path, "/"), "..") {
			errs = append(errs, field.Invalid(p.Child("path"), h.Path, "must not contain '..'"))
		}
		if h.Type != nil && *h.Type != v1.HostPathUnset {
			errs = append(errs, oneOf(p.Child("type"), *h.Type, v1.HostPathDirectoryOrCreate, v1.HostPathDirectory,
				v1.HostPathFileOrCreate, v1.HostPathFile, v1.HostPathSocket, v1.HostPathCharDev, v1.HostPathBlockDev)...)
		}
	}
	if d := v.DownwardAPI; d != nil {
		errs = append(errs, mode(at.Child("downwardAPI", "defaultMode"), d.DefaultMode)...)
		errs = append(errs, validateDownward(at.Child("downwardAPI", "items"), d.Items)...)
	}
	if p := v.Projected; p != nil {
		errs = append(errs, mode(at.Child("projected", "defaultMode"), p.DefaultMode)...)
		files := map[string]bool{}
		for i := range p.Sources {
			if d := p.Sources[i].DownwardAPI; d != nil {
				for j := range d.Items {
					file := path.Clean(d.Items[j].Path)
					if files[file] {
						errs = append(errs, field.Duplicate(at.Child("projected", "sources").Index(i).Child("downwardAPI", "items").Index(j).Child("path"), file))
					}
					files[file] = true
				}
				errs = append(errs, validateDownward(at.Child("projected", "sources").Index(i).Child("downwardAPI", "items"), d.Items)...)
			}
		}
	}
	if n := v.NFS; n != nil {
		if n.Server == "" {
			errs = append(errs, field.Required(at.Child("nfs", "server"), ""))
		}
		switch {
		case n.Path == "":
			errs = append(errs, field.Required(at.Child("nfs", "path"), ""))
		case !path.IsAbs(n.Path):
			errs = append(errs, field.Invalid(at.Child("nfs", "path"), n.Path, "must be an absolute path"))
		}
	}
	if v.GitRepo != nil {
		errs = append(errs, field.Forbidden(at.Child("gitRepo"), "gitRepo volumes are no longer supported"))
	}
	if v.Image != nil && v.Image.Reference == "" {
		errs = append(errs, field.Required(at.Child("image", "reference"), ""))
	}
	return errs
}

func validateDownward(at *field.Path, items []v1.DownwardAPIVolumeFile) field.ErrorList {
	var errs field.ErrorList
	for i := range items {
		item, here := &items[i], at.Index(i)
		if item.Path == "" {
			errs = append(errs, field.Required(here.Child("path"), ""))
		}
		errs = append(errs, localPath(here.Child("path"), item.Path)...)
		if strings.HasPrefix(path.Clean(item.Path), "..") {
			errs = append(errs, field.Invalid(here.Child("path"), item.Path, "must not start with '..'"))
		}
		errs = append(errs, mode(here.Child("mode"), item.Mode)...)
		errs = append(errs, exactlyOne(here, map[string]bool{"fieldRef": item.FieldRef != nil, "resourceFieldRef": item.ResourceFieldRef != nil})...)
		if item.FieldRef != nil {
			errs = append(errs, validateFieldRef(here.Child("fieldRef"), item.FieldRef, false)...)
		}
		if item.ResourceFieldRef != nil {
			errs = append(errs, validateResourceFieldRef(here.Child("resourceFieldRef"), item.ResourceFieldRef, true)...)
		}
	}
	return errs
}

func mode(at *field.Path, m *int32) field.ErrorList {
	if m == nil {
		return nil
	}
	return inRange(at, int64(*m), 0, 0o777)
}

// sources counts the volume types a volume names. Each is a pointer of VolumeSource.
func sources(v *v1.Volume) int {
	n := 0
	s := reflect.ValueOf(v.VolumeSource)
	for i := range s.NumField() {
		if f := s.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			n++
		}
	}
	return n
}
