"""Drawn gestures: conversion of scribbles, lassos and boxes to prompts."""
